#!lua flags=allow-oom
-- release_all.lua: release several locks in one step, each if its lease holds it and no client waits
-- for it. The others are left to release.lua.
--
-- KEYS  1..n locks   n+1..2n their queues of waiters
-- ARGV  1..n lease ids
-- Reply {result, ...}   for each lock: 1 if it was held and is now free, 0 if nothing was changed

local count = #ARGV
local found = redis.call('MGET', unpack(KEYS, 1, count))
local waited_for = redis.call('EXISTS', unpack(KEYS, count + 1, 2 * count)) > 0
local results, free = {}, {}
for i = 1, count do
  local alone = found[i] ~= ARGV[i] or waited_for and redis.call('EXISTS', KEYS[count + i]) == 1
  results[i] = alone and 0 or 1
  if not alone then
    free[#free + 1] = KEYS[i]
  end
end
if #free > 0 then
  redis.call('DEL', unpack(free))
end
return results

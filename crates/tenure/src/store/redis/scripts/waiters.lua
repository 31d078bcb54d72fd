#!lua flags=no-writes,allow-oom,allow-stale
-- waiters.lua: the waiters for a lock in queue order, without those that have died.
--
-- KEYS  1 queue of waiters   2 times until which they count as living
-- Reply {lease id, ...}

local waiting = redis.pcall('ZRANGE', KEYS[1], 0, -1)
if waiting.err then
  -- A key of another type: there are no waiters.
  return string.sub(waiting.err, 1, 9) == 'WRONGTYPE' and {} or waiting
end
local clock = redis.call('TIME')
local now_ms = clock[1] * 1000 + math.floor(clock[2] / 1000)
local dead, living = {}, {}
for _, waiter in ipairs(redis.pcall('ZRANGEBYSCORE', KEYS[2], '-inf', '(' .. now_ms)) do
  dead[waiter] = true
end
for _, waiter in ipairs(waiting) do
  if not dead[waiter] then
    living[#living + 1] = waiter
  end
end
return living

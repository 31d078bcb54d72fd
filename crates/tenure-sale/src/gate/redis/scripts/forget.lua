#!lua flags=allow-oom
-- forget.lua: remove a closed item with nothing left to do, in one atomic step.
--
-- KEYS  1 gate   2 buyers   3 answers   4 orders   5 dead   6 answers of the epoch that ended
-- Reply 1 if it is removed, 0 if it is not closed or entries are left

local state = redis.call('HGET', KEYS[1], 'state')
if state and state ~= 'closed' then
  return 0
end
if redis.call('XLEN', KEYS[4]) > 0 or redis.call('XLEN', KEYS[5]) > 0 then
  return 0
end
redis.call('UNLINK', unpack(KEYS))
return 1

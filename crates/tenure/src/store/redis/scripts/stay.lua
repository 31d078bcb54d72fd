#!lua flags=allow-oom
-- stay.lua: a waiter says that it lives, so that it keeps its place in the queue.
--
-- KEYS  1 queue of waiters   2 until when they count as living
-- ARGV  1 lease id of the waiter
-- Reply 1   it stands in the queue, and counts as living for the next six seconds
--       0   it does not: it was offered the lock, or it was silent for too long

if not redis.call('ZSCORE', KEYS[1], ARGV[1]) then
  return 0
end
local clock = redis.call('TIME')
-- Never a new entry: one that joined without telling counts as living anyway.
redis.call('ZADD', KEYS[2], 'XX', clock[1] * 1000 + math.floor(clock[2] / 1000) + 6000, ARGV[1])
return 1

#!lua flags=allow-oom
-- stay.lua: a waiter reports that it is alive, to keep its place in the queue.
--
-- KEYS  1 queue of waiters   2 times until which they count as living
-- ARGV  1 lease id of the waiter
-- Reply 1   it is in the queue, and counts as living for the next six seconds
--       0   it is not in the queue: it was offered the lock, or was silent for too long

if not redis.call('ZSCORE', KEYS[1], ARGV[1]) then
  return 0
end
local clock = redis.call('TIME')
-- Never adds an entry: a waiter that joined without one counts as living anyway.
redis.call('ZADD', KEYS[2], 'XX', clock[1] * 1000 + math.floor(clock[2] / 1000) + 6000, ARGV[1])
return 1

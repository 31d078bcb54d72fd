#!lua flags=allow-oom
-- release.lua: release the lock if this lease holds it, and offer it to the next living waiter.
--
-- KEYS  1 lock   2 queue of waiters   3 times until which they count as living   [4 fence counter
--       5 the lock's own fence counter, or again the same]   [6 metadata]
-- ARGV  1 lease id   [2 lease id of a waiter that leaves the queue as well, or ``]
--       [3 the last fence used under this lease, or ``]
--       [4 `offer` to only offer it also to a waiter of the same client, which this reply does not
--       reach, or ``]
--       [5 lease id of the waiter to offer it to, if that one lives]
-- Reply 1                      it was held and is now free
--       {1, lease id}          it was held and is now offered to this waiter
--       {2, lease id, fence}   it was held, and is now held by this waiter of the same client, for its
--                              ttl from now, with this fence
--       {0, lease id}          it was not held; the current holder, or nil. The waiter left the queue
--
-- Optimized for speed: most locks are released while there are no waiters.

local has_left = false
if ARGV[2] and ARGV[2] ~= '' then
  has_left = redis.pcall('ZREM', KEYS[2], ARGV[2]) == 1
  redis.pcall('ZREM', KEYS[3], ARGV[2])
end
local found = redis.pcall('GET', KEYS[1])
if found ~= ARGV[1] then
  if type(found) == 'table' then
    if string.sub(found.err, 1, 9) ~= 'WRONGTYPE' then
      return found -- a missing permission does not mean that the lease is missing
    end
    found = false
  end
  has_left = redis.pcall('ZREM', KEYS[2], ARGV[1]) == 1 or has_left
  redis.pcall('ZREM', KEYS[3], ARGV[1])
  if has_left and found and string.sub(found, 1, 14) == 'tenure:shared:' then
    -- Perhaps readers waited only for the one that left: they ask again.
    redis.pcall('PUBLISH', (string.gsub(KEYS[2], 'tenure:queue', 'tenure:wake', 1)), found)
  end
  return {0, found}
end

if ARGV[3] and ARGV[3] ~= '' then
--@include whole.lua
--@include native/handed_on.lua
  handed_on(KEYS[4], KEYS[5], ARGV[3], true)
end
if KEYS[6] then
  redis.call('DEL', KEYS[6])
end
-- With pcall: a key of the wrong type must not block the release of the lock.
if redis.pcall('EXISTS', KEYS[2]) == 0 then
  redis.call('DEL', KEYS[1])
  return 1
end
local queue, alive = KEYS[2], KEYS[3]
local waiter = redis.pcall('ZRANGE', queue, 0, 0)[1]
if waiter then
--@include living.lua
end
if waiter and ARGV[5] then
  local named = ARGV[5]
--@include named.lua
end
if not waiter then
  redis.call('DEL', KEYS[1])
  return 1
end
local counter, own_counter = KEYS[4], KEYS[5]
-- Up to the second colon: `tenure` and the client.
local is_own = ARGV[4] ~= 'offer' and string.sub(waiter, 1, 40) == string.sub(ARGV[1], 1, 40)
--@include native/offer.lua
if is_granted then
  return {2, waiter, told}
end
return {1, waiter}

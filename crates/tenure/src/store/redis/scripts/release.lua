#!lua flags=allow-oom
-- release.lua: end a lease if it is still this one, and offer the lock to the next waiter.
--
-- KEYS  1 lock   2 fence counter   3 queue of waiters   [4 metadata]
-- ARGV  1 lease id   2 ms for which the next waiter may take up the offer, at most
--       3 ttl of the fence counter in ms   4 channel that wakes waiters
-- Reply {1}             it was held and is released
--       {0, lease id}   it was not held; by whom it is, or nil. A place in the queue is given up
--
-- An offer is the lock itself, held by the waiter's lease for a short time: the waiter takes it up
-- by acquire.lua. So nobody can slip in between, and a waiter that died costs only the offer. That
-- lasts no longer than the waiter's own lease would: its ttl is the last part of its id.
--@include mint.lua
--@include whole.lua
--@include lease_at.lua

local offer, fence_ttl = whole(ARGV[2]), whole(ARGV[3])
if not (offer and fence_ttl) or offer < 1 or fence_ttl < 1 then
  return redis.error_reply('ERR tenure: release got a number that is none')
end

local found, refusal = lease_at(KEYS[1])
if refusal then
  return refusal
end
if found ~= ARGV[1] then
  redis.pcall('ZREM', KEYS[3], ARGV[1])
  return {0, found}
end

if KEYS[4] then
  redis.call('DEL', KEYS[4])
end
-- By pcall: a key there that is no queue must not keep the lock from being released.
local waiter = redis.pcall('ZPOPMIN', KEYS[3])[1]
local last = waiter and last_fence(KEYS[2])
if not last then
  redis.call('DEL', KEYS[1])
  return {1}
end

redis.call('SET', KEYS[2], next_fence(last, redis.call('TIME')), 'PX', fence_ttl)
local waiter_ttl = whole(waiter:match(':(%d+)$')) or offer
redis.call('SET', KEYS[1], waiter, 'PX', math.max(1, math.min(waiter_ttl, offer)))
-- A channel that this user may not publish to delays the waiter, it must not fail the release.
redis.pcall('PUBLISH', ARGV[4], waiter)
return {1}

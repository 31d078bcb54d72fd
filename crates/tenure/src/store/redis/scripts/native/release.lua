#!lua flags=allow-oom
-- release.lua: end a lease if it is still this one, and offer the lock to the next waiter.
--
-- KEYS  1 lock   2 queue of waiters   [3 metadata]
-- ARGV  1 lease id
-- Reply 1               it was held and is free now
--       {1, lease id}   it was held and is offered to this waiter
--       {0, lease id}   it was not held; by whom it is, or nil. A place in the queue is given up
--
-- An offer is the lock itself, held by the waiter's lease for a short time: the waiter takes it up
-- by acquire.lua. So nobody can slip in between, and a waiter that died costs only the offer. That
-- lasts two seconds, but no longer than the waiter's own lease would: its ttl is the last part of
-- its id.

local found = redis.pcall('GET', KEYS[1])
if found ~= ARGV[1] then
  if type(found) == 'table' then
    if string.sub(found.err, 1, 9) ~= 'WRONGTYPE' then
      return found -- a right that is missing does not mean that the lease is
    end
    found = false
  end
  redis.pcall('ZREM', KEYS[2], ARGV[1])
  return {0, found}
end

if KEYS[3] then
  redis.call('DEL', KEYS[3])
end
-- By pcall: a key there that is no queue must not keep the lock from being released.
local waiter = redis.pcall('ZPOPMIN', KEYS[2])[1]
if not waiter then
  redis.call('DEL', KEYS[1])
  return 1
end
local ttl = tonumber(waiter:match(':(%d+)$')) or 2000
redis.call('SET', KEYS[1], waiter, 'PX', math.max(1, math.min(ttl, 2000)))
-- A channel that this user may not publish to delays the waiter, it must not fail the release.
redis.pcall('PUBLISH', 'tenure:wake' .. string.sub(KEYS[2], 13), waiter)
return {1, waiter}

#!lua flags=allow-oom
-- turn.lua: decide who gets the lock after this lease. If another waiter is next, the lock is
-- offered to it. If the lease's own process is next, the lease continues, with more fences.
--
-- KEYS  1 lock   2 fence counter   3 the lock's own fence counter, or again the same
--       4 queue of waiters   5 times until which they count as living   [6 metadata]
-- ARGV  1 lease id   2 lease id of the process's place in the queue, or empty
--       3 ttl in ms   4 number of fences to reserve
--       5 the last fence used under this lease, or ``
-- Reply fence           the lease is held for ttl ms from now, with this fence and the reserved ones
--                       after it
--       {1, lease id}   it was held and is now offered to this waiter
--       {0, lease id}   it was not held; the current holder, or nil
--@include whole.lua
--@include native/lease_at.lua
--@include native/handed_on.lua

local ttl, fences = whole(ARGV[3]), whole(ARGV[4])
if not (ttl and fences) or ARGV[5] ~= '' and not whole(ARGV[5]) or ttl < 1
  or fences < 1 or fences > 1000000 then
  return redis.error_reply('ERR tenure: turn: invalid number')
end
local found, refusal = lease_at(KEYS[1])
if refusal then
  return refusal
end
if found ~= ARGV[1] then
  return {0, found}
end

handed_on(KEYS[2], KEYS[3], ARGV[5], false)
-- With pcall: a key of the wrong type counts as an empty queue.
local queue, alive = KEYS[4], KEYS[5]
local waiter = redis.pcall('ZRANGE', queue, 0, 0)[1]
if waiter then
--@include living.lua
end
if waiter and waiter ~= ARGV[2] then
  handed_on(KEYS[2], KEYS[3], ARGV[5], true)
  if KEYS[6] then
    redis.call('DEL', KEYS[6])
  end
  local counter, own_counter, is_own = KEYS[2], KEYS[3], false
--@include native/offer.lua
  return {1, waiter}
end

local clock, was_free = redis.call('TIME'), false
local now = clock[1] * 1000000 + clock[2]
--@include native/fence.lua
if waiter then -- it had its turn: move it to the end
  redis.call('ZADD', KEYS[4], 'XX', now, waiter)
end
redis.call('PEXPIRE', KEYS[1], ttl)
if KEYS[6] then
  redis.call('PEXPIRE', KEYS[6], ttl)
end
return fence

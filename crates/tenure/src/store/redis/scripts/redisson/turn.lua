#!lua flags=allow-oom
-- turn.lua: decide who gets the lock after this lease. If another waiter is next, the lock is
-- offered to it. If the lease's own process is next, the lease continues, with more fences. If
-- Redisson's waiters wait too, it is their turn about every fourth time, as in release.lua.
--
-- KEYS  1 lock   2, 3 fence counter   4 queue of waiters   5 times until which they count as living
--       [6 metadata]
-- ARGV  1 lease id   2 lease id of the process's place in the queue, or empty
--       3 ttl in ms   4 number of fences to reserve
--       5 the last fence used under this lease, or ``   6 Redisson's channel of this lock
-- Reply fence           the lease is held for ttl ms from now, with this fence and the reserved ones
--                       after it
--       {1}             it was held and is now free
--       {1, lease id}   it was held and is now offered to this waiter
--       {0, lease id}   it was not held; the current holder, or nil
--@include whole.lua
--@include redisson/lease_at.lua
--@include redisson/handed_on.lua

local lock, counter, queue, alive, lease = KEYS[1], KEYS[2], KEYS[4], KEYS[5], ARGV[1]
local ttl, fences = whole(ARGV[3]), whole(ARGV[4])
if not (ttl and fences) or ARGV[5] ~= '' and not whole(ARGV[5]) or ttl < 1
  or fences < 1 or fences > 1000000 then
  return redis.error_reply('ERR tenure: turn: invalid number')
end
local found, refusal = lease_at(lock, lease)
if refusal then
  return refusal
end
if found ~= lease then
  -- The key may also contain a read-write lock of Redisson's: only touch our own field.
  if redis.pcall('HDEL', lock, lease) == 1 then
    return {1}
  end
  return {0, found}
end

handed_on(counter, ARGV[5])
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
-- With pcall: a key of the wrong type counts as an empty queue.
local waiter = redis.pcall('ZRANGE', queue, 0, 0)[1]
if waiter then
--@include living.lua
end
-- Our waiters subscribe to both channels, Redisson's to one. If denied, assume some wait.
local wake = string.gsub(queue, 'tenure:queue', 'tenure:wake', 1)
local listeners = redis.pcall('PUBSUB', 'NUMSUB', wake, ARGV[6])
local alone = not listeners.err and listeners[4] <= listeners[2]
local open = not alone and clock[2] % 4 == 0
if open or waiter and waiter ~= ARGV[2] then
  if KEYS[6] then
    redis.call('DEL', KEYS[6])
  end
  if open then
    redis.call('HDEL', lock, lease)
    local brief
    if waiter then
      local heard = redis.pcall('PUBLISH', wake, 'open ' .. waiter)
--@include heard.lua
    end
    redis.pcall('PUBLISH', ARGV[6], '0')
    if brief then
      redis.pcall('PUBLISH', wake, 'brief 500')
    end
    return {1}
  end
  local waiter_ttl = tonumber(string.sub(waiter, -8)) or 2000 -- the last eight digits of its id
  -- In this order: while its slot is migrating, a deleted lock cannot be created again.
  redis.call('HSET', lock, waiter, '1')
  redis.call('HDEL', lock, lease)
  redis.call('PEXPIRE', lock, math.max(1, math.min(waiter_ttl, 2000)))
  local heard, brief = redis.pcall('PUBLISH', wake, waiter)
--@include heard.lua
  if brief then
    redis.call('PEXPIRE', KEYS[1], 500, 'LT')
    redis.pcall('PUBLISH', wake, 'brief 500')
  end
  redis.call('ZREM', queue, waiter)
  redis.pcall('ZREM', alive, waiter)
  return {1, waiter}
end

-- If no fence can be reserved, the lease is released instead.
--@include redisson/fence.lua
if not fence then
  return trouble
end
if waiter then -- it had its turn: move it to the end
  redis.call('ZADD', queue, 'XX', string.format('%.0f', now), waiter)
end
redis.call('PEXPIRE', lock, ttl)
if KEYS[6] then
  redis.call('PEXPIRE', KEYS[6], ttl)
end
return fence

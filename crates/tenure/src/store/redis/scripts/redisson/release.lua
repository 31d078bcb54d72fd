#!lua flags=allow-oom
-- release.lua: release the lock if this lease holds it, and pass it on to the next waiter.
--
-- KEYS  1 lock   2 queue of waiters   3 times until which they count as living   [4, 5 fence counter]
--       [6 metadata]
-- ARGV  1 lease id   2 Redisson's channel of this lock
--       [3 `foreign` if the lease is not Tenure's, or ``]
--       [4 lease id of a waiter that leaves the queue as well, or ``]
--       [5 the last fence used under this lease, or ``]
--       [6 lease id of the waiter to offer it to, if that one lives]
-- Reply 1               it was held and is now free
--       {1, lease id}   it was held and is now offered to this waiter
--       {0, lease id}   it was not held; the current holder, or nil. The waiter left the queue
--       {'type', type}  the lease is part of something that is not a plain lock: `rwlock`
--
-- Our waiters are in our queue; Redisson's only subscribe. So there are three cases:
--   the queue is empty       the lock is free, and `0` wakes Redisson's waiters
--   no waiter of Redisson's  the lock is offered to the first in the queue: it holds the lock for two
--                            seconds, or its own ttl if that is shorter, and accepts it with
--                            acquire.lua. So no other client can acquire it in between
--   both wait                about every fourth time it is Redisson's turn: the lock is free, `open` and
--                            a lease id make the first in the queue hold back for a moment, and `0`
--                            right after it wakes Redisson's waiters. Otherwise as above

--@include redisson/handed_on.lua
local lock, queue, alive, lease, reply, waiter = KEYS[1], KEYS[2], KEYS[3], ARGV[1], 1, nil
local wake = string.gsub(queue, 'tenure:queue', 'tenure:wake', 1)
if ARGV[4] and ARGV[4] ~= '' then
  redis.pcall('ZREM', queue, ARGV[4])
  redis.pcall('ZREM', alive, ARGV[4])
end
if ARGV[3] == 'foreign' and redis.pcall('HEXISTS', lock, 'mode') == 1 then
  return {'type', 'rwlock'}
end
local was_held = redis.pcall('HDEL', lock, lease)
if was_held == 1 then
  handed_on(KEYS[4], ARGV[5])
  if KEYS[6] then
    redis.call('DEL', KEYS[6])
  end
  -- With pcall: a key of the wrong type must not block the release of the lock. Nor must a key that
  -- has just become empty in a slot that is being migrated, which cannot be queried.
  if redis.pcall('EXISTS', queue) == 1 then
    waiter = redis.pcall('ZRANGE', queue, 0, 0)[1]
  end
  if waiter then
--@include living.lua
  end
  if waiter and ARGV[6] then
    local named = ARGV[6]
--@include named.lua
  end
  if waiter then
    -- Our waiters subscribe to both channels, Redisson's to one. If denied, assume some wait.
    local listeners = redis.pcall('PUBSUB', 'NUMSUB', wake, ARGV[2])
    local alone = not listeners.err and listeners[4] <= listeners[2]
    -- Redisson grants a read-write lock over a plain one. If the key still has its fields, it is
    -- not ours to offer, nor is its expiry ours to set.
    local is_free = redis.pcall('EXISTS', lock) == 0
    if is_free and (alone or redis.call('TIME')[2] % 4 ~= 0) then
      local ttl = tonumber(string.sub(waiter, -8)) or 2000 -- the last eight digits of its id
      -- With pcall: the lock is gone by now, and cannot be created again while its slot is migrating.
      if redis.pcall('HSET', lock, waiter, '1') == 1 then
        redis.call('PEXPIRE', lock, math.max(1, math.min(ttl, 2000)))
        -- If this user may not publish to the channel, a waiter is delayed; the release must not fail.
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
    end
  end
else
  local found = false
  if type(was_held) ~= 'table' then
    found = redis.call('HRANDFIELD', lock)
  elseif string.sub(was_held.err, 1, 9) ~= 'WRONGTYPE' then
    return was_held -- a missing permission does not mean that the lease is missing
  end
  reply = {0, found}
  local had_place = redis.pcall('ZREM', queue, lease) == 1
  redis.pcall('ZREM', alive, lease)
  if not had_place or found then
    return reply
  end
  -- It may have been the waiter that holds back: then the next one must.
  waiter = redis.pcall('ZRANGE', queue, 0, 0)[1]
  if waiter then
--@include living.lua
  end
end

local brief
if waiter then
  local heard = redis.pcall('PUBLISH', wake, 'open ' .. waiter)
--@include heard.lua
end
redis.pcall('PUBLISH', ARGV[2], '0')
if brief then
  redis.pcall('PUBLISH', wake, 'brief 500')
end
return reply

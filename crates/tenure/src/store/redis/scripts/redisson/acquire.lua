#!lua
-- acquire.lua: take a free lock, or say who holds it. One atomic step.
--
-- KEYS  1 lock   2 fence counter   [3 queue of waiters   4 until when they count as living]
--       [5 metadata]
-- ARGV  1 lease id   2 ttl in ms   3 latest server time in us at which this may still be granted
--       4 how many fences to reserve
--       [5 `queue` to stand in the queue if the lock is busy, or ``]
--       [6 the only master that may grant, by its run id and replication id, or ``: any]
--       [7.. metadata: field, value, field, value ...]
-- Reply fence                          the lock is held by this lease for ttl ms from now, and this
--                                      fence and those that follow it are its own
--       {'busy', lease id, ms left}    another lease holds it; -1 ms left: without expiry
--       {'late', server time in us}    the latest moment has passed, nothing was changed
--       {'master', master}             another master than the one that may grant, nothing was changed
--       {'type', type}                 the key is not a lock of this kind, nothing was changed:
--                                      a type of Redis, or `rwlock`
--
-- A lock is a hash with one field, the holder's lease id, whose value is how often it was entered.
-- Ours is always 1. Repeating a granted attempt finds its own lease, extends it to a full ttl and
-- reserves greater fences. The same happens when release.lua has offered the lock to this lease.
--
-- Written for speed: most attempts find the lock free, and every command and argument counts.

-- Adding zero makes a number of a text, or fails, and is cheaper than tonumber.
local lock, lease, counter = KEYS[1], ARGV[1], KEYS[2]
local ttl, latest, fences = ARGV[2] + 0, ARGV[3] + 0, ARGV[4] + 0
if ttl % 1 ~= 0 or ttl < 1 or ttl > 9007199254740991
  or latest % 1 ~= 0 or latest < 0 or latest > 9007199254740991
  or fences % 1 ~= 0 or fences < 1 or fences > 1000000 then
  return redis.error_reply('ERR tenure: acquire got a number that is none')
end
if #ARGV > 6 and #ARGV % 2 ~= 0 then
  return redis.error_reply('ERR tenure: acquire got metadata that are no pairs')
end

if ARGV[6] and ARGV[6] ~= '' then
--@include master.lua
  local found = master()
  if found ~= ARGV[6] then
    return {'master', found}
  end
end
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
if now > latest then
  return {'late', string.format('%.0f', now)}
end

local was_free = redis.call('EXISTS', lock) == 0
if was_free then
  redis.call('HSET', lock, lease, '1')
else
--@include redisson/holder_at.lua
  local found, refusal = holder_at(lock)
  if refusal then
    return refusal
  end
  if found ~= lease then
    if ARGV[5] == 'queue' then
      -- It lives from its first moment, in the same step. stay.lua moves that forward.
      redis.call('ZADD', KEYS[4], math.floor(now / 1000) + 6000, lease)
      redis.call('ZADD', KEYS[3], 'NX', string.format('%.0f', now), lease)
      -- Every waiter looks again sooner than in a day. Both end together: without its time a
      -- waiter would count as living.
      redis.call('PEXPIRE', KEYS[3], 86400000)
      redis.call('PEXPIRE', KEYS[4], 86400000)
    end
    return {'busy', found, redis.call('PTTL', lock)}
  end
end
local ends = redis.pcall('PEXPIRE', lock, ARGV[2])
if ends ~= 1 then
  if was_free then
    redis.call('DEL', lock) -- never a lock without an end, not even for want of a right
  end
  return ends
end

--@include redisson/fence.lua
if not fence then
  if was_free then
    redis.call('DEL', lock)
  end
  return trouble
end

if ARGV[5] == 'queue' then
  -- By pcall: the lock is taken already, and a key there that is no queue must not hide that.
  if redis.pcall('ZREM', KEYS[3], lease) == 1 then
    redis.pcall('ZREM', KEYS[4], lease)
  end
end
if KEYS[5] then
  redis.call('DEL', KEYS[5])
  redis.call('HSET', KEYS[5], 'lease', lease, unpack(ARGV, 7))
  redis.call('PEXPIRE', KEYS[5], ARGV[2])
end
return fence

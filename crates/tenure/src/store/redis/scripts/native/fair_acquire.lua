#!lua
-- fair_acquire.lua: acquire a free lock that no living waiter ahead of this lease waits for, or report
-- its holder, in one atomic step.
--
-- KEYS  1 lock   2 fence counter   3 the lock's own fence counter, or again the same
--       4 queue of waiters   5 times until which they count as living   [6 metadata]
-- ARGV  1 lease id   2 ttl in ms   3 latest server time in us at which this may be granted
--       4 1, the number of fences   5 `queue` to join the queue if the lock is busy, or ``
--       6 the only primary that may grant, by its run id and replication id, or `` for any
--       [7.. metadata: field, value, field, value ...]
-- Reply fence                          the lock is held by this lease for ttl ms from now, with this
--                                      fence
--       {'busy', lease id, ms left}    another lease holds it; or it was free and is now offered to
--                                      the first waiter; -1 ms left means no expiry
--       {'late', server time in us}    the latest time has passed, nothing was changed
--       {'master', master}             this is a different primary, nothing was changed
--       {'type', type}                 the key is not a string, nothing was changed
--
-- A lock that release.lua released is never free while living waiters wait, because it is offered to the
-- first. It is after a holder has died. Then who notices that first does not get it, unless he is next.
--
-- A repeated attempt that was already granted finds its own lease and extends it to a full ttl. So does
-- the waiter to which the lock was offered.
--@include whole.lua

local ttl, latest = whole(ARGV[2]), whole(ARGV[3])
if not (ttl and latest) or ttl < 1 then
  return redis.error_reply('ERR tenure: fair_acquire: invalid number')
end
if #ARGV > 6 and #ARGV % 2 ~= 0 then
  return redis.error_reply('ERR tenure: fair_acquire: metadata must be field-value pairs')
end
local primary = ARGV[6]
--@include in_time.lua

local lock, queue, alive, lease = KEYS[1], KEYS[4], KEYS[5], ARGV[1]
local found = redis.pcall('GET', lock)
if type(found) == 'table' then
  if string.sub(found.err, 1, 9) ~= 'WRONGTYPE' then
    return found
  end
  return {'type', redis.call('TYPE', lock).ok}
end

local waiter
if not found then
  -- With pcall: a key of the wrong type counts as an empty queue.
  waiter = redis.pcall('ZRANGE', queue, 0, 0)[1]
  if waiter then
--@include living.lua
  end
end
if found and found ~= lease or waiter and waiter ~= lease then
  if ARGV[5] == 'queue' then
    -- It counts as living from the start, in the same step. stay.lua extends that.
    redis.call('ZADD', alive, math.floor(now / 1000) + 6000, lease)
    redis.call('ZADD', queue, 'NX', now, lease)
    redis.call('PEXPIRE', queue, 86400000)
    redis.call('PEXPIRE', alive, 86400000)
  end
  if not found then
    local counter, own_counter, is_own = KEYS[2], KEYS[3], false
--@include native/offer.lua
  end
  return {'busy', redis.call('GET', lock), redis.call('PTTL', lock)}
end

redis.call('SET', lock, lease, 'PX', ttl)
local fences, was_free = 1, not found
--@include native/fence.lua
-- With pcall: the lock is already acquired, and a key of the wrong type must not hide that.
redis.pcall('ZREM', queue, lease)
redis.pcall('ZREM', alive, lease)
if KEYS[6] then
  local meta, meta_lease, meta_ttl, fields_at, term = KEYS[6], lease, ttl, 7, fence
--@include term.lua
end
return fence

#!lua
-- shared_acquire.lua: share a lock with other readers, or report its holder, in one atomic step.
--
-- KEYS  1 lock   2 fence counter   3 the lock's own fence counter, or again the same
--       4 queue of waiters   5 times until which they count as living   6 readers
-- ARGV  1 lease id   2 ttl in ms   3 latest server time in us at which this may be granted
--       4 1, the number of fences   5 `queue` to join the queue if the lock is busy, or ``
--       6 the only primary that may grant, by its run id and replication id, or `` for any
-- Reply fence                          this lease shares the lock for ttl ms from now; all readers of a
--                                      phase have this fence
--       {'busy', lease id, ms left}    another lease holds the lock alone, or readers share it
--                                      (`tenure:shared:` and their fence) and a waiter ahead wants it
--                                      alone; -1 ms left means no expiry
--       {'late', server time in us}    the latest time has passed, nothing was changed
--       {'master', master}             this is a different primary, nothing was changed
--       {'type', type}                 the key is not a string, nothing was changed
--
-- A repeated attempt that was already granted finds its own lease and extends it to a full ttl. So
-- does a reader that was admitted with others. A lock that release.lua has offered to this lease
-- alone becomes shared.
--@include whole.lua
--@include native/shared.lua
--@include native/shared_queue.lua

local ttl, latest = whole(ARGV[2]), whole(ARGV[3])
if not (ttl and latest) or ttl < 1 then
  return redis.error_reply('ERR tenure: shared_acquire: invalid number')
end
local primary = ARGV[6]
--@include in_time.lua

local lock, queue, alive, readers, lease = KEYS[1], KEYS[4], KEYS[5], KEYS[6], ARGV[1]
local found = redis.pcall('GET', lock)
if type(found) == 'table' then
  if string.sub(found.err, 1, 9) ~= 'WRONGTYPE' then
    return found
  end
  return {'type', redis.call('TYPE', lock).ok}
end
local ends, phase = now + ttl * 1000, phase_of(found)

-- Shares the phase that there is.
local function share()
  redis.call('ZADD', readers, ends, lease)
  set_end(lock, readers)
  redis.pcall('ZREM', queue, lease)
  redis.pcall('ZREM', alive, lease)
  return phase
end

local function busy()
  if ARGV[5] == 'queue' then
    -- It counts as living from the start, in the same step. stay.lua extends that.
    redis.call('ZADD', alive, math.floor(now / 1000) + 6000, lease)
    redis.call('ZADD', queue, 'NX', now, lease)
    redis.call('PEXPIRE', queue, 86400000)
    redis.call('PEXPIRE', alive, 86400000)
  end
  return {'busy', redis.call('GET', lock), redis.call('PTTL', lock)}
end

if phase then
  drop_ended(readers, now)
  if redis.call('ZSCORE', readers, lease) then
    return share()
  end
  if redis.call('EXISTS', readers) == 0 then
    found, phase = false, nil
  end
elseif found and found ~= lease then
  return busy()
end

local has_dropped = redis.pcall('EXISTS', queue) ~= 0 and drop_dead(queue, alive, now)
if has_dropped and phase then
  wake_readers(queue, found)
end
if found ~= lease and redis.pcall('EXISTS', queue) ~= 0 then
  local first, writer = readers_first(queue, lease)
  if writer and writer ~= lease then
    if phase then
      return busy()
    end
    -- The lock is free, and a waiter ahead wants it alone: the head of the queue is next.
    local waiter, counter, own_counter, is_own = first[1] or writer, KEYS[2], KEYS[3], false
--@include native/offer.lua
    return busy()
  end
  if phase and #first > 0 and not has_dropped then
    wake_readers(queue, found)
  end
end
if phase then
  return share()
end

local fences, was_free = 1, false
--@include native/fence.lua
begin_phase(lock, readers, queue, alive, fence, lease, ends, now)
return fence

#!lua
-- upgrade.lua: hold alone a lock that this reader shares with no other, and that nobody waits for.
-- Two readers that waited for each other would wait forever, so this never waits.
--
-- KEYS  1 lock   2 fence counter   3 the lock's own fence counter, or again the same
--       4 queue of waiters   5 times until which they count as living   6 readers
-- ARGV  1 old lease id   2 new lease id   3 ttl in ms
--       4 latest server time in us at which this may be done
--       5 the only primary that may do it, by its run id and replication id, or `` for any
-- Reply fence                          held alone under the new id for ttl ms from now, with this fence
--       {'shared', readers, waiters}   there are others, nothing was changed
--       {'gone', lease id}             the old lease is not there; who holds the lock, or nil
--       {'late', server time in us}    the latest time has passed, nothing was changed
--       {'master', master}             this is a different primary, nothing was changed
--
-- A repeated call finds the new id, and mints another fence.
--@include whole.lua
--@include native/lease_at.lua
--@include native/shared.lua
--@include native/shared_queue.lua

local ttl, latest = whole(ARGV[3]), whole(ARGV[4])
if not (ttl and latest) or ttl < 1 then
  return redis.error_reply('ERR tenure: upgrade: invalid number')
end
local primary = ARGV[5]
--@include in_time.lua
local lock, queue, alive, readers = KEYS[1], KEYS[4], KEYS[5], KEYS[6]
local found, refusal = lease_at(lock)
if refusal then
  return refusal
end
if found ~= ARGV[2] then
  if not phase_of(found) then
    return {'gone', found}
  end
  drop_ended(readers, now)
  if not redis.call('ZSCORE', readers, ARGV[1]) then
    return {'gone', false}
  end
  if drop_dead(queue, alive, now) then
    wake_readers(queue, found)
  end
  local others = redis.call('ZCARD', readers) - 1
  local waiters = redis.pcall('ZCARD', queue)
  waiters = type(waiters) == 'number' and waiters or 0
  if others > 0 or waiters > 0 then
    return {'shared', others, waiters}
  end
end
local fences, was_free = 1, false
--@include native/fence.lua
redis.call('SET', lock, ARGV[2], 'PX', ttl)
redis.call('DEL', readers)
return fence

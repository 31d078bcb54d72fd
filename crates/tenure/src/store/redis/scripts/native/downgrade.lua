#!lua
-- downgrade.lua: share a lock that one lease holds alone. Its holder goes on as a reader under a new
-- lease id, and the readers at the head of the queue join it.
--
-- KEYS  1 lock   2 fence counter   3 the lock's own fence counter, or again the same
--       4 queue of waiters   5 times until which they count as living   6 readers   7 metadata
-- ARGV  1 old lease id   2 new lease id   3 ttl in ms
--       4 latest server time in us at which this may be done
--       5 the only primary that may do it, by its run id and replication id, or `` for any
-- Reply fence                          shared under the new id for ttl ms from now, with this fence
--       {'gone', lease id}             the old lease is not there; who holds the lock, or nil
--       {'late', server time in us}    the latest time has passed, nothing was changed
--       {'master', master}             this is a different primary, nothing was changed
--
-- A repeated call finds the new id.
--@include whole.lua
--@include native/lease_at.lua
--@include native/shared.lua
--@include native/shared_queue.lua

local ttl, latest = whole(ARGV[3]), whole(ARGV[4])
if not (ttl and latest) or ttl < 1 then
  return redis.error_reply('ERR tenure: downgrade: invalid number')
end
local primary = ARGV[5]
--@include in_time.lua
local lock, queue, alive, readers, ends = KEYS[1], KEYS[4], KEYS[5], KEYS[6], now + ttl * 1000
local found, refusal = lease_at(lock)
if refusal then
  return refusal
end
local phase = phase_of(found)
if phase then
  drop_ended(readers, now)
  if redis.call('ZSCORE', readers, ARGV[2]) then
    redis.call('ZADD', readers, ends, ARGV[2])
    set_end(lock, readers)
    return phase
  end
end
if found ~= ARGV[1] then
  return {'gone', found}
end
drop_dead(queue, alive, now)
local fences, was_free = 1, false
--@include native/fence.lua
redis.call('DEL', KEYS[7])
begin_phase(lock, readers, queue, alive, fence, ARGV[2], ends, now)
return fence

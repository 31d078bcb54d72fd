#!lua flags=allow-oom
-- shared_adopt.lua: take over the detached lease of a reader under a new id, so that it cannot be
-- adopted twice.
--
-- KEYS  1 lock   2 readers
-- ARGV  1 old lease id   2 new lease id   3 ttl in ms
--       4 latest server time in us at which this may be done
--       5 the only primary that may do it, by its run id and replication id, or `` for any
-- Reply {'adopted'}                    held under the new id for ttl ms from now
--       {'gone', lease id}             the old lease is not there; who holds the lock alone, or nil
--       {'late', server time in us}    the latest time has passed, nothing was changed
--       {'master', master}             this is a different primary, nothing was changed
--
-- A repeated call finds the new id. The fence stays that of the phase.
--@include whole.lua
--@include native/lease_at.lua
--@include native/shared.lua

local ttl, latest = whole(ARGV[3]), whole(ARGV[4])
if not (ttl and latest) or ttl < 1 then
  return redis.error_reply('ERR tenure: shared_adopt: invalid number')
end
local primary = ARGV[5]
--@include in_time.lua
local found, refusal = lease_at(KEYS[1])
if refusal then
  return refusal
end
if not phase_of(found) then
  return {'gone', found}
end
drop_ended(KEYS[2], now)
local is_held = redis.call('ZSCORE', KEYS[2], ARGV[1]) or redis.call('ZSCORE', KEYS[2], ARGV[2])
if not is_held then
  return {'gone', false}
end
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('ZADD', KEYS[2], now + ttl * 1000, ARGV[2])
set_end(KEYS[1], KEYS[2])
return {'adopted'}

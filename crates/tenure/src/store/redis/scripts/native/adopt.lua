#!lua flags=allow-oom
-- adopt.lua: take over a detached lease under a new id, so that it cannot be adopted twice.
--
-- KEYS  1 lock   2 metadata
-- ARGV  1 old lease id   2 new lease id   3 ttl in ms
--       4 latest server time in us at which this may be done
--       [5 the only primary that may do it, by its run id and replication id, or `` for any]
-- Reply {'adopted'}                    held under the new id for ttl ms from now
--       {'gone', lease id}             the old lease is not there; the current one, or nil
--       {'late', server time in us}    the latest time has passed, nothing was changed
--       {'master', master}             this is a different primary, nothing was changed
--
-- A repeated call finds the new id. The fence stays that of the old lease.
--@include whole.lua
--@include native/lease_at.lua

local ttl, latest = whole(ARGV[3]), whole(ARGV[4])
if not (ttl and latest) or ttl < 1 then
  return redis.error_reply('ERR tenure: adopt: invalid number')
end
local primary = ARGV[5] or ''
--@include in_time.lua

local found, refusal = lease_at(KEYS[1])
if refusal then
  return refusal
end
if found ~= ARGV[1] and found ~= ARGV[2] then
  return {'gone', found}
end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ttl)
if redis.pcall('HGET', KEYS[2], 'lease') == found then
  redis.call('HSET', KEYS[2], 'lease', ARGV[2])
  redis.call('PEXPIRE', KEYS[2], ttl)
end
return {'adopted'}

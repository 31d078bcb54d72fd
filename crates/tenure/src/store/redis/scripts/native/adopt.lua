#!lua flags=allow-oom
-- adopt.lua: go on with a detached lease under an id of one's own, so that nobody else can.
--
-- KEYS  1 lock   2 metadata
-- ARGV  1 lease id as it was   2 lease id from now on   3 ttl in ms
--       4 latest server time in us at which this may still be done
--       [5 the only master that may do it, by its run id and replication id, or ``: any]
-- Reply {'adopted'}                    held under the new id for ttl ms from now
--       {'gone', lease id}             the old lease is not there; whose it is, or nil
--       {'late', server time in us}    the latest moment has passed, nothing was changed
--       {'master', master}             another master than the one that may, nothing was changed
--
-- Repeating it finds the new id. The fence stays that of the old lease.
--@include whole.lua
--@include native/lease_at.lua

local ttl, latest = whole(ARGV[3]), whole(ARGV[4])
if not (ttl and latest) or ttl < 1 then
  return redis.error_reply('ERR tenure: adopt got a number that is none')
end
if ARGV[5] and ARGV[5] ~= '' then
--@include master.lua
  local found = master()
  if found ~= ARGV[5] then
    return {'master', found}
  end
end
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
if now > latest then
  return {'late', string.format('%.0f', now)}
end

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

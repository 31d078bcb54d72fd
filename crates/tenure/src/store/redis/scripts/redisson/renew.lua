#!lua flags=allow-oom
-- renew.lua: extend a lease to a full ttl, if it still exists. Never creates one.
--
-- KEYS  1 lock   [2 metadata]
-- ARGV  1 lease id   2 ttl in ms   3 whether to read the key again: 1 or 0
-- Reply {1}             renewed
--       {0, lease id}   not held by this lease; the current holder, or nil

--@include whole.lua
--@include redisson/lease_at.lua

local ttl = whole(ARGV[2])
if not ttl or ttl < 1 then
  return redis.error_reply('ERR tenure: renew: invalid ttl')
end

local found, refusal = lease_at(KEYS[1], ARGV[1])
if refusal then
  return refusal
end
if found ~= ARGV[1] then
  return {0, found}
end
redis.call('PEXPIRE', KEYS[1], ttl)
if KEYS[2] then
  redis.call('PEXPIRE', KEYS[2], ttl)
end
if ARGV[3] == '1' then
  -- PEXPIRE ended this connection's tracking of the key: read it again.
  redis.call('HGET', KEYS[1], ARGV[1])
end
return {1}

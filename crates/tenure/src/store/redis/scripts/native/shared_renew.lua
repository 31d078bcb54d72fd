#!lua flags=allow-oom
-- shared_renew.lua: extend the lease of a reader to a full ttl, if it still exists. Never creates one.
--
-- KEYS  1 lock   2 readers
-- ARGV  1 lease id   2 ttl in ms
-- Reply {1}             renewed
--       {0, lease id}   not held by this lease; who holds the lock alone, or nil
--@include whole.lua
--@include native/lease_at.lua
--@include native/shared.lua

local ttl = whole(ARGV[2])
if not ttl or ttl < 1 then
  return redis.error_reply('ERR tenure: shared_renew: invalid ttl')
end
local found, refusal = lease_at(KEYS[1])
if refusal then
  return refusal
end
if not phase_of(found) then
  return {0, found}
end
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
drop_ended(KEYS[2], now)
if not redis.call('ZSCORE', KEYS[2], ARGV[1]) then
  return {0, false}
end
redis.call('ZADD', KEYS[2], now + ttl * 1000, ARGV[1])
set_end(KEYS[1], KEYS[2])
return {1}

#!lua flags=allow-oom
-- permit_renew.lua: extend a lease of permits to a full ttl, if it still exists. Never creates one.
--
-- KEYS  1 semaphore   2 permits   3 slots   4 slots that were given back   5 what waiters want
-- ARGV  1 lease id   2 ttl in ms
-- Reply {1}             renewed
--       {0, lease id}   not held by this lease; who holds the key as a lock, or nil
--@include whole.lua
--@include native/lease_at.lua

local semaphore, permits, slots, unused, wanted = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
--@include native/permits.lua
local ttl = whole(ARGV[2])
if not ttl or ttl < 1 then
  return redis.error_reply('ERR tenure: permit_renew: invalid ttl')
end
local found, refusal = lease_at(semaphore)
if refusal then
  return refusal
end
if not limit_of(found) then
  return {0, found}
end
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local ends = redis.call('ZSCORE', permits, ARGV[1])
if not ends or tonumber(ends) <= now then
  return {0, false}
end
redis.call('ZADD', permits, string.format('%.0f', now + ttl * 1000), ARGV[1])
keep_semaphore(semaphore, now)
return {1}

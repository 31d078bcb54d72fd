#!lua
-- proclaim.lua: change the value of a leader, if its lease still holds the lock. Never creates a lease
-- and never extends one.
--
-- KEYS  1 lock   2 metadata
-- ARGV  1 lease id   2 ttl of the lease in ms   3 term   4 version, greater with each value of a term
--       5 value
-- Reply {1}             the value is this one, or one with a greater version
--       {0, lease id}   not held by this lease; the current holder, or nil
--
-- A repeated or late call with a lower version changes nothing.
--@include whole.lua
--@include LAYOUT/lease_at.lua

local ttl, version = whole(ARGV[2]), whole(ARGV[4])
if not (ttl and version and whole(ARGV[3])) or ttl < 1 then
  return redis.error_reply('ERR tenure: proclaim: invalid number')
end
local found, refusal = lease_at(KEYS[1], ARGV[1])
if refusal then
  return refusal
end
if found ~= ARGV[1] then
  return {0, found}
end
if redis.pcall('HGET', KEYS[2], 'lease') ~= ARGV[1] then
  redis.call('DEL', KEYS[2]) -- of an earlier lease, or missing
end
local known = tonumber(redis.call('HGET', KEYS[2], 'tenure:version') or 0)
if known >= version then
  return {1}
end
redis.call('HSET', KEYS[2], 'lease', ARGV[1], 'tenure:term', ARGV[3], 'tenure:version', ARGV[4],
  'tenure:value', ARGV[5])
-- It may have been missing, and must not outlast the lease.
local left = redis.call('PTTL', KEYS[1])
redis.call('PEXPIRE', KEYS[2], left > 0 and left or ttl)
return {1}

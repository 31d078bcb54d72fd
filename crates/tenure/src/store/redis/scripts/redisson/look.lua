#!lua flags=no-writes,allow-oom,allow-stale
-- look.lua: read who holds a lock.
--
-- KEYS  1 lock   2 fence counter   3 metadata   4 fence stored by a Redlock node
-- Reply {'free'}
--       {'held', lease id, ms left, last fence or nil, {field, value, ...}}
--       {'type', type}   the key is not a lock of this kind: a Redis type, or `rwlock`
--@include redisson/holder_at.lua

local found, refusal = holder_at(KEYS[1])
if refusal then
  return refusal
end
if not found then
  return {'free'}
end
local fence = redis.pcall('GET', KEYS[2])
local meta = redis.pcall('HGETALL', KEYS[3])
return {
  'held', found, redis.call('PTTL', KEYS[1]),
  type(fence) == 'string' and fence or false,
  meta.err and {} or meta,
}

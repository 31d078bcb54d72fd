#!lua flags=no-writes,allow-oom,allow-stale
-- look.lua: who holds a lock, without taking it.
--
-- KEYS  1 lock   2 fence counter   3 metadata   4 fence that a node of a Redlock stores
-- Reply {'free'}
--       {'held', lease id, ms left, last fence or nil, {field, value, ...}}
--       {'type', type}   the key is not a lock of this kind: a type of Redis, or `rwlock`
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

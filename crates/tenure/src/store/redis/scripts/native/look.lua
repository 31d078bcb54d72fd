#!lua flags=no-writes,allow-oom,allow-stale
-- look.lua: read who holds a lock.
--
-- KEYS  1 lock   2 fence counter   3 metadata   4 fence stored by a Redlock node
-- Reply {'free'}
--       {'held', lease id, ms left, last fence or nil, {field, value, ...}}
--       {'type', type}   the key is not a string

--@include native/last_fence.lua
local found = redis.pcall('GET', KEYS[1])
if type(found) == 'table' then
  if string.sub(found.err, 1, 9) ~= 'WRONGTYPE' then
    return found
  end
  return {'type', redis.call('TYPE', KEYS[1]).ok}
end
if not found then
  return {'free'}
end
local meta = redis.pcall('HGETALL', KEYS[3])
return {
  'held', found, redis.call('PTTL', KEYS[1]),
  last_fence(KEYS[2], KEYS[4]),
  meta.err and {} or meta,
}

#!lua flags=no-writes,allow-oom,allow-stale
-- look.lua: read who holds a lock.
--
-- KEYS  1 lock   2 fence counter   3 metadata   4 fence stored by a Redlock node   5 readers
--       6 permits   7 slots
-- ARGV  1 how many readers to show at most
-- Reply {'free'}
--       {'held', lease id, ms left, last fence or nil, {field, value, ...}}
--       {'held', `tenure:shared:` and fence, ms left, last fence or nil, {}, {number of readers,
--       lease id, ...}}   readers share the lock; shown are those whose leases end last
--       {'held', `tenure:semaphore:` and limit, ms left, nil, {}, {number of leases, lease id, ...},
--       {slots, ...}}   permits of a semaphore are in use; shown are those whose leases end last, and
--                       the slots of each in the same order
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
if string.sub(found, 1, 17) == 'tenure:semaphore:' then
  local clock = redis.call('TIME')
  local now = clock[1] * 1000000 + clock[2]
  local live = string.format('(%.0f', now)
  local leases = redis.pcall('ZREVRANGEBYSCORE', KEYS[6], '+inf', live, 'LIMIT', 0, ARGV[1])
  if leases.err and string.sub(leases.err, 1, 9) ~= 'WRONGTYPE' then
    return leases
  end
  if leases.err or #leases == 0 then
    return {'free'} -- nobody has a permit
  end
  local last = redis.call('ZSCORE', KEYS[6], leases[1])
  local slots = redis.pcall('HMGET', KEYS[7], unpack(leases))
  table.insert(leases, 1, redis.call('ZCOUNT', KEYS[6], live, '+inf'))
  local left_ms = math.ceil((last - now) / 1000)
  return {'held', found, left_ms, false, {}, leases, slots.err and {} or slots}
end
if string.sub(found, 1, 14) == 'tenure:shared:' then
  local clock = redis.call('TIME')
  local now = string.format('(%.0f', clock[1] * 1000000 + clock[2])
  local readers = redis.pcall('ZREVRANGEBYSCORE', KEYS[5], '+inf', now, 'LIMIT', 0, ARGV[1])
  local count = redis.pcall('ZCOUNT', KEYS[5], now, '+inf')
  if readers.err and string.sub(readers.err, 1, 9) ~= 'WRONGTYPE' then
    return readers
  end
  if readers.err or #readers == 0 then
    return {'free'} -- the last lease has just ended
  end
  table.insert(readers, 1, count)
  return {'held', found, redis.call('PTTL', KEYS[1]), last_fence(KEYS[2], KEYS[4]), {}, readers}
end
local meta = redis.pcall('HGETALL', KEYS[3])
return {
  'held', found, redis.call('PTTL', KEYS[1]),
  last_fence(KEYS[2], KEYS[4]),
  meta.err and {} or meta,
}

-- holder_at.lua: read the holder of a lock, and check the key's type. Included by acquire.lua and
-- look.lua.

-- The lease id at `key`, false if there is none. Second, the reply to return if the key is not a
-- lock or cannot be read. A lock has one field with a count; a read-write lock also has a field
-- `mode`.
local function holder_at(key)
  local size = redis.pcall('HLEN', key)
  if type(size) == 'table' then
    if string.sub(size.err, 1, 9) ~= 'WRONGTYPE' then
      return false, size
    end
    return false, {'type', redis.call('TYPE', key).ok}
  end
  if size == 0 then
    return false
  end
  if redis.call('HEXISTS', key, 'mode') == 1 then
    return false, {'type', 'rwlock'}
  end
  if size > 1 then
    return false, {'type', 'hash'}
  end
  local lock = redis.call('HGETALL', key)
  if not lock[2]:find('^%d+$') then
    return false, {'type', 'hash'}
  end
  return lock[1]
end

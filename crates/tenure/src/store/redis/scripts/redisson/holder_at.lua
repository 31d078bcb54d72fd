-- holder_at.lua: who holds a lock, and whether it is one. Included by acquire.lua and look.lua.

-- The lease id at `key`, false if nothing is there. Second, what to answer if that is no lock, or may
-- not be read. A lock has one field with a count; a read-write lock has a field `mode` as well.
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

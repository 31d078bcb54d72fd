-- lease_at.lua: read the lease id of a lock. Included by renew.lua and adopt.lua.

-- `id` if it is the only holder of the lock at `key`, otherwise the current holder; false if there
-- is none, or if the key is not a lock. Redisson grants a read-write lock over a plain one: then
-- the key is no longer ours alone. Second, an error to return: a missing permission does not mean
-- that the lease is missing.
local function lease_at(key, id)
  local count = redis.pcall('HGET', key, id)
  if type(count) == 'table' then
    if string.sub(count.err, 1, 9) == 'WRONGTYPE' then
      return false
    end
    return false, count
  end
  if not count then
    return redis.call('HRANDFIELD', key)
  end
  if redis.call('HLEN', key) == 1 then
    return id
  end
  for _, field in ipairs(redis.call('HKEYS', key)) do
    if field ~= id and field ~= 'mode' then
      return field
    end
  end
  return 'mode'
end

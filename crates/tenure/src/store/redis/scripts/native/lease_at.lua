-- lease_at.lua: read the lease id of a lock. Included by renew.lua and adopt.lua.

-- The lease id at `key`; false if there is none, or if the key is not a lock. Second, an error to
-- return: a missing permission does not mean that the lease is missing.
local function lease_at(key)
  local found = redis.pcall('GET', key)
  if type(found) ~= 'table' then
    return found
  end
  if string.sub(found.err, 1, 9) == 'WRONGTYPE' then
    return false
  end
  return false, found
end

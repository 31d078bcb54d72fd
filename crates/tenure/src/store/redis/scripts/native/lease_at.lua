-- lease_at.lua: whose lease stands at a lock's name. Included by renew.lua and adopt.lua.

-- The lease id at `key`; false if there is none, or a key that is no lock. Second, an error to pass
-- on: a right that is missing does not mean that the lease is.
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

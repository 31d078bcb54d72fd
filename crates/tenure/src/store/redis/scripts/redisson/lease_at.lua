-- lease_at.lua: whose lease stands at a lock's name. Included by renew.lua and adopt.lua.

-- `id` if it holds the lock at `key`, otherwise who does; false if nobody does, or the key is no
-- lock. Second, an error to pass on: a right that is missing does not mean that the lease is.
local function lease_at(key, id)
  local count = redis.pcall('HGET', key, id)
  if type(count) == 'table' then
    if string.sub(count.err, 1, 9) == 'WRONGTYPE' then
      return false
    end
    return false, count
  end
  return count and id or redis.call('HRANDFIELD', key)
end

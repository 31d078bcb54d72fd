-- lock.lua: a lock and its fence on one node of a Redlock. Included by the scripts in redlock.

-- The lease id at `key`, false if there is none. Second, the reply to return if the key is not a
-- lock or cannot be read.
local function holder_at(key)
  local found = redis.pcall('GET', key)
  if type(found) ~= 'table' then
    return found
  end
  if string.sub(found.err, 1, 9) ~= 'WRONGTYPE' then
    return false, found
  end
  return false, {'type', redis.call('TYPE', key).ok}
end

-- Gives the lock to this lease if it is free; returns whether it was.
local function take(key, id, ttl)
  return redis.call('SET', key, id, 'NX', 'PX', ttl)
end

-- Gives the lock to this lease, overwriting the key.
local function put(key, id, ttl)
  redis.call('SET', key, id, 'PX', ttl)
end

local function keep_fence(key, fence)
  redis.call('SET', key, string.format('%.0f', fence), 'PX', 604800000) -- a week
end

-- lock.lua: a lock and its fence on one node of a Redlock. Included by the scripts in redlock.
--@include redisson/holder_at.lua

-- Gives the lock, which must be free, to this lease.
local function give(key, id, ttl)
  redis.call('HSET', key, id, '1')
  local ends = redis.pcall('PEXPIRE', key, ttl)
  if ends ~= 1 then
    redis.call('DEL', key) -- never leave a lock without expiry, even if a permission is missing
    error('cannot set the expiry of the lock')
  end
end

-- Gives the lock to this lease if it is free; returns whether it was.
local function take(key, id, ttl)
  if redis.call('EXISTS', key) == 1 then
    return false
  end
  give(key, id, ttl)
  return true
end

-- Gives the lock to this lease, overwriting the key.
local function put(key, id, ttl)
  redis.call('DEL', key)
  give(key, id, ttl)
end

-- No ttl: Redisson would start again at 1.
local function keep_fence(key, fence)
  redis.call('SET', key, string.format('%.0f', fence))
end

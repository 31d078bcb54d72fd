-- lock.lua: a lock and its fence on one node of a Redlock. Included by the scripts in redlock.
--@include redisson/holder_at.lua

-- Gives the lock to this lease, which must be free.
local function give(key, id, ttl)
  redis.call('HSET', key, id, '1')
  local ends = redis.pcall('PEXPIRE', key, ttl)
  if ends ~= 1 then
    redis.call('DEL', key) -- never a lock without an end, not even for want of a right
    error('cannot give the lock an end')
  end
end

-- Gives the lock to this lease if it is free; whether it was.
local function take(key, id, ttl)
  if redis.call('EXISTS', key) == 1 then
    return false
  end
  give(key, id, ttl)
  return true
end

-- Gives the lock to this lease, whatever is there.
local function put(key, id, ttl)
  redis.call('DEL', key)
  give(key, id, ttl)
end

-- No ttl: Redisson would begin again at 1.
local function keep_fence(key, fence)
  redis.call('SET', key, string.format('%.0f', fence))
end

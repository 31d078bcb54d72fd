-- lock.lua: a lock and its fence on one node of a Redlock. Included by the scripts in redlock.
--@include redisson/holder_at.lua

local function put(key, id, ttl)
  redis.call('DEL', key)
  redis.call('HSET', key, id, '1')
  local ends = redis.pcall('PEXPIRE', key, ttl)
  if ends ~= 1 then
    redis.call('DEL', key) -- never a lock without an end, not even for want of a right
    error('cannot give the lock an end')
  end
end

-- No ttl: Redisson would begin again at 1.
local function keep_fence(key, fence)
  redis.call('SET', key, string.format('%.0f', fence))
end

-- shared.lua: the readers of a shared lock. Included by the scripts of shared leases.
--
-- While readers hold a lock, its key is `tenure:shared:` and the fence of their phase, and it expires
-- when the last of their leases ends. `readers` is a sorted set of lease ids by the end of the lease,
-- in us of the server's clock. A lock that one lease holds alone has no readers.
local PHASE = 'tenure:shared:'

-- The fence of the phase that this value of the lock stands for, or nil.
local function phase_of(value)
  if value and string.sub(value, 1, #PHASE) == PHASE then
    return tonumber(string.sub(value, #PHASE + 1))
  end
end

local function drop_ended(readers, now)
  redis.call('ZREMRANGEBYSCORE', readers, '-inf', string.format('%.0f', now))
end

-- Lets the lock and its set of readers expire when the last lease has ended.
local function set_end(lock, readers)
  local last = redis.call('ZRANGE', readers, -1, -1, 'WITHSCORES')[2]
  local end_ms = math.ceil(last / 1000)
  redis.call('PEXPIREAT', lock, end_ms)
  redis.call('PEXPIREAT', readers, end_ms)
end

#!lua
-- acquire.lua: take a free lock, or say who holds it. One atomic step.
--
-- KEYS  1 lock   2 fence counter   3 queue of waiters   [4 metadata]
-- ARGV  1 lease id   2 ttl in ms   3 latest server time in us at which this may still be granted
--       4 ttl of the fence counter in ms   5 ttl of the queue in ms, or 0 to stay out of it
--       6.. metadata: field, value, field, value ...
-- Reply {'granted', fence}             the lock is held by this lease for ttl ms from now
--       {'busy', lease id, ms left}    another lease holds it; -1 ms left: without expiry
--       {'late', server time in us}    the latest moment has passed, nothing was changed
--       {'type', type}                 the key is not a string, nothing was changed
--
-- Repeating a granted attempt finds its own lease, extends it to a full ttl and answers the same
-- fence. The same happens when release.lua has offered the lock to this lease.
--@include mint.lua
--@include whole.lua

local ttl, latest = whole(ARGV[2]), whole(ARGV[3])
local fence_ttl, queue_ttl = whole(ARGV[4]), whole(ARGV[5])
if not (ttl and latest and fence_ttl and queue_ttl) or ttl < 1 or fence_ttl < 1 then
  return redis.error_reply('ERR tenure: acquire got a number that is none')
end
if #ARGV % 2 == 0 then
  return redis.error_reply('ERR tenure: acquire got metadata that are no pairs')
end

local clock = redis.call('TIME')
if clock[1] * 1000000 + clock[2] > latest then
  return {'late', string.format('%.0f', clock[1] * 1000000 + clock[2])}
end
local last, trouble = last_fence(KEYS[2])
if not last then
  return redis.error_reply(trouble)
end

local fence
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ttl) then
  fence = next_fence(last, clock)
  redis.call('SET', KEYS[2], fence, 'PX', fence_ttl)
else
  local found = redis.pcall('GET', KEYS[1])
  if type(found) == 'table' then
    return {'type', redis.call('TYPE', KEYS[1]).ok}
  end
  if found ~= ARGV[1] then
    if queue_ttl > 0 then
      redis.call('ZADD', KEYS[3], 'NX', clock[1] * 1000000 + clock[2], ARGV[1])
      redis.call('PEXPIRE', KEYS[3], queue_ttl)
    end
    return {'busy', found, redis.call('PTTL', KEYS[1])}
  end
  redis.call('PEXPIRE', KEYS[1], ttl)
  fence = string.format('%.0f', last)
  if last == 0 then -- the counter was lost after the grant
    fence = next_fence(last, clock)
    redis.call('SET', KEYS[2], fence, 'PX', fence_ttl)
  end
end

if queue_ttl > 0 then
  -- By pcall: the lock is taken already, and a key there that is no queue must not hide that.
  redis.pcall('ZREM', KEYS[3], ARGV[1])
end
if KEYS[4] then
  redis.call('DEL', KEYS[4])
  redis.call('HSET', KEYS[4], 'lease', ARGV[1], unpack(ARGV, 6))
  redis.call('PEXPIRE', KEYS[4], ttl)
end
return {'granted', fence}

#!lua flags=allow-oom
-- release.lua: release a lease on one node if it still holds the lock, and notify the waiters.
--
-- KEYS  1 lock   2 fence   [3 metadata]
-- ARGV  1 lease id   2 last fence of the vote to undo, or empty for any vote
--       3 channel to notify, or empty for none   [4 Redisson's channel]
-- Reply {1}             it was held
--       {0, lease id}   it was not held, or by another vote; the current holder, or nil
--@include whole.lua
--@include redlock/stored_fence.lua
--@include LAYOUT/lock.lua

local found, refusal = holder_at(KEYS[1])
if refusal then
  if refusal.err then
    return refusal
  end
  return {0, false}
end
if found ~= ARGV[1] then
  return {0, found}
end
if ARGV[2] ~= '' then
  local stored, trouble = stored_fence(KEYS[2])
  if trouble then
    return trouble
  end
  if stored ~= whole(ARGV[2]) then
    return {0, found}
  end
end

redis.call('DEL', KEYS[1])
if KEYS[3] then
  redis.call('DEL', KEYS[3])
end
if ARGV[3] ~= '' then
  -- If this user may not publish to the channel, a waiter is delayed; the release must not fail.
  -- The message has the number of waiters: the more there are, the longer each waits before it
  -- tries.
  local listeners = redis.pcall('PUBSUB', 'NUMSUB', ARGV[3])[2] or 1
  if listeners > 0 then
    redis.pcall('PUBLISH', ARGV[3], 'free ' .. listeners .. ' ' .. ARGV[1])
  end
  if ARGV[4] then
    redis.pcall('PUBLISH', ARGV[4], '0')
  end
end
return {1}

#!lua flags=allow-oom
-- release.lua: end a lease on one node if it is still this one, and tell those who wait.
--
-- KEYS  1 lock   2 fence   [3 metadata]
-- ARGV  1 lease id   2 last fence of the vote that is taken back, or empty: whatever the vote was
--       3 channel to tell, or empty: nobody   [4 Redisson's channel]
-- Reply {1}             it was held
--       {0, lease id}   it was not held, or by another vote; by whom it is, or nil
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
  -- A channel that this user may not publish to delays a waiter, it must not fail the release.
  -- With how many there are: the more, the longer each waits before it asks.
  local listeners = redis.pcall('PUBSUB', 'NUMSUB', ARGV[3])[2] or 1
  if listeners > 0 then
    redis.pcall('PUBLISH', ARGV[3], 'free ' .. listeners .. ' ' .. ARGV[1])
  end
  if ARGV[4] then
    redis.pcall('PUBLISH', ARGV[4], '0')
  end
end
return {1}

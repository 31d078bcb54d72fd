#!lua flags=allow-oom
-- release_all.lua: release several leases on one node, each as release.lua does, and notify the
-- waiters. Only for leases without metadata.
--
-- KEYS  1..n locks   n+1..2n their fences   2n+1..3n their waiters
-- ARGV  1 number of channels for each lock
--       then for each lock: lease id, last fence of the vote to undo, or empty for any vote,
--       and the channels to notify, or empty for none
-- Reply {reply, ...}   for each lock 1 if it was held, 0 if it was not, or by another vote, 2 if
--                      nothing was changed and release.lua must decide; or an error
--
-- Nothing fails after the first write. So if the script fails as a whole, nothing was changed.
--@include whole.lua
--@include redlock/stored_fence.lua
--@include LAYOUT/lock.lua

local channels, count = whole(ARGV[1]), #KEYS / 3
if not channels or channels < 1 or count < 1 or #ARGV ~= 1 + (2 + channels) * count then
  return redis.error_reply('ERR tenure: release_all: wrong number of arguments')
end

-- Whether this vote, if only one is meant, is the one that the lock was given for. Second, an error.
local function is_meant(i, last)
  if last == '' then
    return true
  end
  local stored, trouble = stored_fence(KEYS[count + i])
  return stored == whole(last), trouble
end

local replies, free, told, of = {}, {}, {}, {}
local waited_for = redis.call('EXISTS', unpack(KEYS, 2 * count + 1)) > 0
for i = 1, count do
  local at = 2 + (2 + channels) * (i - 1)
  local found, refusal = holder_at(KEYS[i])
  replies[i] = refusal and refusal.err and refusal or 0
  if waited_for and redis.call('EXISTS', KEYS[2 * count + i]) == 1 then
    replies[i] = 2
  elseif found and found == ARGV[at] then
    local meant, trouble = is_meant(i, ARGV[at + 1])
    replies[i] = trouble or meant and 1 or 0
    if replies[i] == 1 then
      free[#free + 1] = KEYS[i]
      if ARGV[at + 2] ~= '' then
        told[#told + 1] = ARGV[at + 2]
        of[#told] = at
      end
    end
  end
end
if #free > 0 then
  redis.call('DEL', unpack(free))
end
if #told > 0 then
  -- As in release.lua: if this user may not publish, waiters are delayed.
  local listening = redis.pcall('PUBSUB', 'NUMSUB', unpack(told))
  for i = 1, #told do
    local listeners, at = listening[2 * i] or 1, of[i]
    if listeners > 0 then
      redis.pcall('PUBLISH', told[i], 'free ' .. listeners .. ' ' .. ARGV[at])
    end
    if channels > 1 then
      redis.pcall('PUBLISH', ARGV[at + 3], '0')
    end
  end
end
return replies

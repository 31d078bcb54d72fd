#!lua
-- vote_all.lua: one node's votes for several leases, each as vote.lua gives it. Only for leases
-- without metadata, and with a ttl of at most 30000.
--
-- KEYS  1..n locks   n+1..2n their fences
-- ARGV  1 how far below this node's clock a block may begin, in us   2 how far above it may end
--       3 `always` if that applies in any case, or `` if only when no fence is stored
--       then for each lock: lease id, ttl in ms, latest server time in us at which this may be
--       granted, first fence of the block, number of fences
-- Reply {reply, ...}   for each lock what vote.lua replies, or its error
--
-- A lease that is refused changes nothing for the others. If the script fails as a whole, each vote
-- may be repeated by vote.lua.
--@include whole.lua
--@include redlock/stored_fence.lua
--@include LAYOUT/lock.lua
--@include redlock/cast_vote.lua

local below, above, always = whole(ARGV[1]), whole(ARGV[2]), ARGV[3] == 'always'
local count = #KEYS / 2
if not (below and above) or count < 1 or #ARGV ~= 3 + 5 * count then
  return redis.error_reply('ERR tenure: vote_all: wrong number of arguments')
end
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local known = redis.call('MGET', unpack(KEYS, count + 1))

local function vote(i)
  local at = 5 * i - 2
  local ttl, latest, first = whole(ARGV[at + 2]), whole(ARGV[at + 3]), whole(ARGV[at + 4])
  local fences = whole(ARGV[at + 5])
  if not (ttl and latest and first and fences) or ttl < 1 or ttl > 30000 or fences < 1
    or fences > 1000000 or not whole(first + fences) then
    return redis.error_reply('ERR tenure: vote_all: invalid number')
  end
  if now > latest then
    return {'late', string.format('%.0f', now)}
  end
  local stored, trouble = known[i] and whole(known[i]), nil
  if not stored then -- there is none, or it is no fence
    stored, trouble = stored_fence(KEYS[count + i])
  end
  if trouble then
    return trouble
  end
  return cast_vote(KEYS[i], KEYS[count + i], ARGV[at + 1], ttl, first, first + fences - 1, stored,
    now, below, above, always)
end

local replies = {}
for i = 1, count do
  replies[i] = vote(i)
end
return replies

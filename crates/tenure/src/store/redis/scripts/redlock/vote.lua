#!lua
-- vote.lua: one node's vote for a lease with a block of fences.
--
-- KEYS  1 lock   2 fence   [3 metadata]   [the last one: longest ttl, if the ttl is above 30000]
-- ARGV  1 lease id   2 ttl in ms   3 latest server time in us at which this may be granted
--       4 first fence of the block   5 number of fences
--       6 how far below this node's clock a block may begin, in us   7 how far above it may end
--       8 `always` if that applies in any case, or `` if only when no fence is stored
--       [9.. metadata: field, value, field, value ...]
-- Reply 1                                vote given: the lock belongs to this lease for ttl ms
--       {'busy', lease id, ms left, floor}   another lease has it; -1 ms left means no expiry
--       {'stale', floor}                 the block must be above this
--       {'far', server time in us}       the block ends too far above this node's clock
--       {'late', server time in us}      the latest time has passed
--       {'type', type}                   the key is not a lock
-- Except for the first reply, nothing was changed, except that a ttl above 30000 is recorded as one
-- that leases may have: a node that restarts has no vote for 30 s, and its clients must know if
-- that is too short.
--@include whole.lua
--@include redlock/stored_fence.lua
--@include redlock/keep_longest.lua
--@include LAYOUT/lock.lua
--@include redlock/cast_vote.lua

local ttl, latest, first = whole(ARGV[2]), whole(ARGV[3]), whole(ARGV[4])
local fences, below, above = whole(ARGV[5]), whole(ARGV[6]), whole(ARGV[7])
if not (ttl and latest and first and fences and below and above) or ttl < 1 or fences < 1
  or fences > 1000000 or not whole(first + fences) then
  return redis.error_reply('ERR tenure: vote: invalid number')
end
if #ARGV % 2 ~= 0 then
  return redis.error_reply('ERR tenure: vote: metadata must be field-value pairs')
end
local long, meta = ttl > 30000, KEYS[3]
if long and #KEYS < 3 then
  return redis.error_reply('ERR tenure: vote: a long ttl needs a key to store it')
end
if long and #KEYS == 3 then
  meta = nil
end
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
if now > latest then
  return {'late', string.format('%.0f', now)}
end
local stored, trouble = stored_fence(KEYS[2])
if trouble then
  return trouble
end
if long then
  keep_longest(KEYS[#KEYS], ttl)
end
local reply = cast_vote(KEYS[1], KEYS[2], ARGV[1], ttl, first, first + fences - 1, stored, now,
  below, above, ARGV[8] == 'always')
if reply == 1 and meta then
  redis.call('DEL', meta)
  redis.call('HSET', meta, 'lease', ARGV[1], unpack(ARGV, 9))
  redis.call('PEXPIRE', meta, ttl)
end
return reply

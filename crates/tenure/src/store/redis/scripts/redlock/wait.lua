#!lua
-- wait.lua: one node's vote for the lease of a waiter, as vote.lua gives it. If another lease has the
-- lock, the waiter joins the node's list of waiters. Only for leases without metadata, and with a
-- ttl of at most 30000.
--
-- KEYS  1 lock   2 fence   3 waiters
-- ARGV  1..8 as in vote.lua   9 place among the waiters: lower ones come first
-- Reply as vote.lua
--
-- The list is a hint: it decides who asks first, not who gets the lock. So it is not replicated, and
-- a node that has lost it only makes more clients ask at once.
--@include whole.lua
--@include redlock/stored_fence.lua
--@include LAYOUT/lock.lua
--@include redlock/cast_vote.lua

local ttl, latest, first = whole(ARGV[2]), whole(ARGV[3]), whole(ARGV[4])
local fences, below, above = whole(ARGV[5]), whole(ARGV[6]), whole(ARGV[7])
local place = whole(ARGV[9])
if not (ttl and latest and first and fences and below and above and place) or ttl < 1
  or ttl > 30000 or fences < 1 or fences > 1000000 or not whole(first + fences) then
  return redis.error_reply('ERR tenure: wait: invalid number')
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
if holder_at(KEYS[1]) == 'tenure:offer:' .. ARGV[1] then
  redis.call('DEL', KEYS[1])
end
local reply = cast_vote(KEYS[1], KEYS[2], ARGV[1], ttl, first, first + fences - 1, stored, now,
  below, above, ARGV[8] == 'always')
-- With pcall: a list of the wrong type is no list.
redis.set_repl(redis.REPL_NONE)
if reply == 1 then
  redis.pcall('ZREM', KEYS[3], ARGV[1])
elseif reply[1] == 'busy' then
  redis.pcall('ZADD', KEYS[3], 'NX', place, ARGV[1])
  redis.pcall('PEXPIRE', KEYS[3], 60000)
end
return reply

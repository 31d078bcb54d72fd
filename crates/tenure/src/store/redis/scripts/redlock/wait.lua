#!lua
-- wait.lua: one node's vote for the lease of a waiter, as vote.lua gives it. If another lease has the
-- lock, the waiter joins the node's list of waiters.
--
-- KEYS  1 lock   2 fence   3 waiters   [4 metadata]   [the last one: longest ttl, as in vote.lua]
-- ARGV  1..8 as in vote.lua   9 place among the waiters: lower ones come first
--       [10.. metadata: field, value, field, value ..., as for acquire.lua]
-- Reply as vote.lua, but
--       {'busy', lease id, ms left, floor, waiters ahead}   without the last if there is no list
--
-- The list is a hint: it decides who asks first, not who gets the lock. So it is not replicated, and
-- a node that has lost it only makes more clients ask at once.
--@include whole.lua
--@include redlock/stored_fence.lua
--@include redlock/keep_longest.lua
--@include LAYOUT/lock.lua
--@include redlock/cast_vote.lua
--@include redlock/vote_for_one.lua

local place = whole(ARGV[9])
if not place then
  return redis.error_reply('ERR tenure: wait: invalid number')
end
if holder_at(KEYS[1]) == 'tenure:offer:' .. ARGV[1] then
  redis.call('DEL', KEYS[1])
end
local reply = vote_for_one(4, 10)
-- With pcall: a list of the wrong type is no list.
redis.set_repl(redis.REPL_NONE)
if reply == 1 then
  redis.pcall('ZREM', KEYS[3], ARGV[1])
elseif reply[1] == 'busy' then
  redis.pcall('ZADD', KEYS[3], 'NX', place, ARGV[1])
  redis.pcall('PEXPIRE', KEYS[3], 60000)
  local ahead = redis.pcall('ZRANK', KEYS[3], ARGV[1])
  reply[5] = type(ahead) == 'number' and ahead or nil
end
return reply

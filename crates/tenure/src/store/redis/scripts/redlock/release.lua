#!lua flags=allow-oom
-- release.lua: release a lease on one node if it still holds the lock, and notify the waiters.
--
-- KEYS  1 lock   2 fence   3 waiters   [4 metadata]
-- ARGV  1 lease id   2 last fence of the vote to undo, or empty for any vote
--       3 channel to notify, or empty for none
--       4 lease id of a waiter of the same process, or empty
--       5 `leave` if it leaves the list of waiters, `last` if it moves to its end
--       [6 Redisson's channel]
-- Reply {1}             it was held
--       {2}             it was held, and a waiter was told
--       {0, lease id}   it was not held, or by another vote; the current holder, or nil
--
-- If clients are in the node's list of waiters, the first one that listens is told, and for 100 ms no
-- other gets the vote of this node: so they do not take votes from each other. The second one is told
-- to ask some time later, should the first have died.
--@include whole.lua
--@include redlock/stored_fence.lua
--@include LAYOUT/lock.lua

-- Tells a waiter that this lease was released, and among how many it should ask at random. Returns
-- whether it listens.
local function tell(waiter, among)
  local client = string.match(waiter, '^tenure:([^:]+)') or ''
  local heard = redis.pcall('PUBLISH', ARGV[3] .. ':' .. client,
    'free ' .. among .. ' ' .. ARGV[1])
  return type(heard) == 'number' and heard > 0
end

-- Offers the lock to the first waiter that listens; returns whether there is one. Not replicated: it
-- is a hint. With pcall: if a permission is missing or the list is of the wrong type, waiters are
-- delayed; the release must not fail.
local function offer()
  redis.set_repl(redis.REPL_NONE)
  for _ = 1, 32 do
    local waiter = redis.pcall('ZRANGE', KEYS[3], 0, 0)[1]
    if not waiter or redis.pcall('ZREM', KEYS[3], waiter) ~= 1 then
      break
    end
    if tell(waiter, 1) then
      put(KEYS[1], 'tenure:offer:' .. waiter, 100)
      local second = redis.pcall('ZRANGE', KEYS[3], 0, 0)[1]
      if second then
        tell(second, 50)
      end
      return true
    end
  end
  redis.set_repl(redis.REPL_ALL)
  return false
end

-- Removes those that no longer wait from the list; an offer to them is void. Returns whether there
-- was one.
local function leave(found)
  redis.set_repl(redis.REPL_NONE)
  local left = {ARGV[2] == '' and ARGV[1] or nil}
  if ARGV[5] == 'leave' then
    left[#left + 1] = ARGV[4]
  elseif ARGV[5] == 'last' then
    local clock = redis.call('TIME')
    redis.pcall('ZADD', KEYS[3], 'XX', clock[1] * 1000000 + clock[2], ARGV[4])
  end
  local void = false
  for _, waiter in ipairs(left) do
    redis.pcall('ZREM', KEYS[3], waiter)
    void = void or found == 'tenure:offer:' .. waiter
  end
  redis.set_repl(redis.REPL_ALL)
  return void
end

local found, refusal = holder_at(KEYS[1])
if refusal then
  if refusal.err then
    return refusal
  end
  return {0, false}
end
if leave(found) then
  redis.call('DEL', KEYS[1])
  if ARGV[3] ~= '' then
    offer()
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
if KEYS[4] then
  redis.call('DEL', KEYS[4])
end
local offered = ARGV[3] ~= '' and offer()
if ARGV[3] ~= '' and not offered then
  -- If this user may not publish to the channel, a waiter is delayed; the release must not fail.
  -- The message has the number of waiters: the more there are, the longer each waits before it
  -- tries.
  local listeners = redis.pcall('PUBSUB', 'NUMSUB', ARGV[3])[2] or 1
  if listeners > 0 then
    redis.pcall('PUBLISH', ARGV[3], 'free ' .. listeners .. ' ' .. ARGV[1])
  end
end
if ARGV[6] then
  redis.pcall('PUBLISH', ARGV[6], '0')
end
return {offered and 2 or 1}

-- permit_queue.lua: waiters for the permits of a semaphore. Included after permits.lua by the scripts
-- that admit them.

local function leave_queue(id)
  redis.pcall('ZREM', queue, id)
  redis.pcall('ZREM', alive, id)
  redis.pcall('HDEL', wanted, id)
end

-- What this waiter wants: how many slots, and whether it may overtake.
local function wish_of(waiter)
  local wish = redis.pcall('HGET', wanted, waiter)
  wish = type(wish) == 'string' and wish or '1'
  return tonumber(string.match(wish, '^%d+')) or 1, string.sub(wish, -1) == '+'
end

-- The waiters for permits at the head of the queue, without dead ones: see living.lua. A thousand at
-- most: those behind them are not next. With pcall: a key of the wrong type must not block a release.
local function first_waiters(now)
  local now_ms = string.format('(%.0f', math.floor(now / 1000))
  local dead = redis.pcall('ZRANGEBYSCORE', alive, '-inf', now_ms, 'LIMIT', 0, 1000)
  for _, waiter in ipairs(dead.err and {} or dead) do
    leave_queue(waiter)
  end
  local waiting, first = redis.pcall('ZRANGE', queue, 0, 999), {}
  for _, waiter in ipairs(waiting.err and {} or waiting) do
    -- A client that takes the semaphore for a lock may wait here too, in vain.
    if string.find(waiter, '^tenure:%x+:00000') then
      first[#first + 1] = waiter
    end
  end
  return first
end

-- Gives free slots to waiters, in order: none overtakes one that waits for more slots, unless it may.
-- They have them for as long as an offer lasts, and accept by acquiring. Returns those that still wait.
local function admit(limit, now)
  if redis.pcall('EXISTS', queue) == 0 then
    return {}
  end
  local still, free = {}, limit - slots_in_use()
  for _, waiter in ipairs(first_waiters(now)) do
    local count, overtakes = wish_of(waiter)
    if count <= free and (#still == 0 or overtakes) then
      local waiter_ttl = tonumber(string.match(waiter, ':(%d+)$')) or 2000
      local offer_ms = math.max(1, math.min(waiter_ttl, 2000))
      take_slots(waiter, count, now + offer_ms * 1000)
      leave_queue(waiter)
      free = free - count
      -- If this user may not publish to the channel, the waiter is delayed.
      redis.pcall('PUBLISH', (string.gsub(queue, 'tenure:queue', 'tenure:wake', 1)), waiter)
    else
      still[#still + 1] = waiter
    end
  end
  return still
end

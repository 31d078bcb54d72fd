-- offer.lua: offer the lock in KEYS[1] to `waiter`, the first in `queue`. Included by release.lua
-- and turn.lua, which set `counter` and `own_counter` if fences may be minted, and `is_own` if the
-- reply reaches the waiter.
--
-- An offer is the lock itself, held by the waiter's lease for a short time; the waiter accepts it
-- with acquire.lua. So no other client can acquire the lock in between, and a waiter that died
-- costs only the offer. The offer lasts two seconds, but no longer than the waiter's own lease
-- would: its ttl is the last part of its id.
--
-- A waiter whose number begins with two zeros, not three, can also take the lock without acquire.lua. A waiter of the
-- same client gets its whole lease, and learns that from the reply. Any other one is told in the
-- message what it may rely on until it has renewed: a fence, the server's clock when the offer was
-- written, and when the offer ends at the earliest, both in us.
local waiter_ttl = tonumber(waiter:match(':(%d+)$')) or 2000
local offer_ms = math.max(1, math.min(waiter_ttl, 2000))
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local now_ms = math.floor(now / 1000)

-- The next fence; nil if there is trouble with the counters, which must not block the release.
local function mint(KEYS)
  local fences, was_free = 1, false
--@include native/fence.lua
  return fence
end
local told
if counter and string.find(waiter, '^tenure:%x+:00[^0]') then
  local is_minted, fence = pcall(mint, {KEYS[1], counter, own_counter})
  told = is_minted and type(fence) == 'number' and fence
end

local wake = string.gsub(queue, 'tenure:queue', 'tenure:wake', 1)
local waiting, is_granted = told and redis.pcall('ZCARD', queue), told and is_own
if is_granted then
  redis.call('SET', KEYS[1], waiter, 'PXAT', now_ms + waiter_ttl)
  if waiting ~= 1 then
    redis.pcall('PUBLISH', wake, waiter)
  end
else
  redis.call('SET', KEYS[1], waiter, 'PXAT', now_ms + offer_ms)
  -- If this user may not publish to the channel, the waiter is delayed; the release must not fail.
  local message, brief = waiter, nil
  if told then
    -- Not longer than heard.lua may make the offer after this was published: it cannot know who heard
    -- this on a replica.
    local sure_ms = math.min(offer_ms, 500)
    message = string.format('%s %.0f %.0f %.0f', waiter, told, now, (now_ms + sure_ms) * 1000)
  end
  local heard = redis.pcall('PUBLISH', wake, message)
--@include heard.lua
  if brief then
    redis.call('PEXPIREAT', KEYS[1], now_ms + 500, 'LT')
    redis.pcall('PUBLISH', wake, 'brief 500')
  end
end
redis.call('ZREM', queue, waiter)
redis.pcall('ZREM', alive, waiter)

-- offer.lua: offer the lock in KEYS[1] to `waiter`, the first in `queue`. Included by release.lua
-- and turn.lua.
--
-- An offer is the lock itself, held by the waiter's lease for a short time; the waiter accepts it
-- with acquire.lua. So no other client can acquire the lock in between, and a waiter that died
-- costs only the offer. The offer lasts two seconds, but no longer than the waiter's own lease
-- would: its ttl is the last part of its id.
local waiter_ttl = tonumber(waiter:match(':(%d+)$')) or 2000
redis.call('SET', KEYS[1], waiter, 'PX', math.max(1, math.min(waiter_ttl, 2000)))
-- If this user may not publish to the channel, the waiter is delayed; the release must not fail.
local wake = 'tenure:wake' .. string.sub(queue, 13)
local heard, brief = redis.pcall('PUBLISH', wake, waiter)
--@include heard.lua
if brief then
  redis.call('PEXPIRE', KEYS[1], 500, 'LT')
  redis.pcall('PUBLISH', wake, 'brief 500')
end
redis.call('ZREM', queue, waiter)
redis.pcall('ZREM', alive, waiter)

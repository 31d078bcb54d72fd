#!lua
-- take_one.lua: sell one unit to the holder of a fence, in one atomic step.
--
-- KEYS  1 units left   2 greatest fence seen
-- ARGV  1 fence of the lock that the caller holds
-- Reply {'taken', left}    one unit fewer is left
--       {'sold out'}       none was left
--       {'stale', fence}   a greater fence was seen before, nothing was changed
--       {'not loaded'}     the item is not on sale, nothing was changed
--
-- A fence that is not stale is stored even when there was nothing left to take: an earlier holder
-- must not come back after the item was restocked.

local EXACT_MAX = 9007199254740991 -- 2^53 - 1: up to here Lua's numbers are exact

local function whole(text)
  local number = tonumber(text)
  return number and number >= 0 and number <= EXACT_MAX and number % 1 == 0 and number
end

local fence = whole(ARGV[1])
if not fence then
  return redis.error_reply('ERR tenure: take_one: invalid fence')
end
local found = redis.call('GET', KEYS[1])
if not found then
  return {'not loaded'}
end
local left = whole(found)
if not left then
  return redis.error_reply('ERR tenure: the units in `' .. KEYS[1] .. '` are not a number')
end
local seen = whole(redis.call('GET', KEYS[2]) or '0')
if not seen then
  return redis.error_reply('ERR tenure: the fence in `' .. KEYS[2] .. '` is not a number')
end

if fence < seen then
  return {'stale', string.format('%.0f', seen)}
end
if fence > seen then
  redis.call('SET', KEYS[2], string.format('%.0f', fence))
end
if left == 0 then
  return {'sold out'}
end
return {'taken', redis.call('DECR', KEYS[1])}

#!lua
-- sell_one.lua: sell one unit without any lock. One atomic step.
--
-- KEYS  1 units left
-- Reply 1   one unit fewer is left
--       0   none was left, nothing was changed

local left = tonumber(redis.call('GET', KEYS[1]))
if not left then
  return redis.error_reply('ERR tenure: the units in `' .. KEYS[1] .. '` are no number')
end
if left <= 0 then
  return 0
end
redis.call('DECR', KEYS[1])
return 1

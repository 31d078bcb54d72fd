#!lua
-- receive.lua: units arrive on a shelf from another one. One atomic step, which takes effect once: the
-- numbers of a giver grow, and the last one that came from it is kept.
--
-- KEYS  1 gate
-- ARGV  1 epoch   2 from which shelf   3 number of the move there   4 units
-- Reply {'received'}   they are here now
--       {'before'}     they came before, nothing was changed
--       {'stale'}      another epoch or server

--@include whole.lua
--@include server.lua

local from = 'from:' .. ARGV[2]
local gate = redis.call('HMGET', KEYS[1], 'epoch', 'state', 'run', 'left', 'came', from)
if gate[1] ~= ARGV[1] or gate[2] == 'loading' or gate[3] ~= server() then
  return {'stale'}
end
local left, came, last = whole(gate[4]), whole(gate[5]), whole(gate[6] or '0')
local number, units = whole(ARGV[3]), whole(ARGV[4])
if not (left and came and last and number and units) then
  return redis.error_reply('ERR tenure: `' .. KEYS[1] .. '` is no shelf')
end
if number <= last then
  return {'before'}
end
redis.call('HSET', KEYS[1], 'left', plain(left + units), 'came', plain(came + units), from,
  ARGV[3])
return {'received'}

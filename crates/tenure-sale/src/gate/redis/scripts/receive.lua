#!lua flags=allow-oom
-- receive.lua: add units to a shelf that come from another one, in one atomic step. It takes effect
-- once: the move numbers of a giver increase, and the last received one is stored.
--
-- KEYS  1 gate
-- ARGV  1 epoch   2 giving shelf   3 number of the move there   4 units
-- Reply {'received'}   they are here now
--       {'before'}     they were received before, nothing was changed
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
  return redis.error_reply('ERR tenure: `' .. KEYS[1] .. '` is not a shelf')
end
if number <= last then
  return {'before'}
end
redis.call('HSET', KEYS[1], 'left', plain(left + units), 'came', plain(came + units), from,
  ARGV[3])
return {'received'}

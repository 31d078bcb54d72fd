#!lua
-- give.lua: take units from a shelf for another one, and record the move, in one atomic step.
--
-- KEYS  1 gate
-- ARGV  1 epoch   2 receiving shelf   3 number of units wanted there
-- Reply {'given', number, units}           they are in transit: all that was wanted, or half of what
--                                          was left, whichever is more; never more than was left
--       {'under way', number, to, units}   an earlier move was not concluded, nothing was changed
--       {'none'}                           nothing is left here
--       {'stale'}                          another epoch or server

--@include whole.lua
--@include server.lua

local gate = redis.call('HMGET', KEYS[1], 'epoch', 'state', 'run', 'left', 'gone', 'gave', 'out')
if gate[1] ~= ARGV[1] or gate[2] == 'loading' or gate[3] ~= server() then
  return {'stale'}
end
if gate[7] then
  local number, to, units = string.match(gate[7], '^(%d+):(%d+):(%d+)$')
  return {'under way', number, to, units}
end
local left, gone, gave = whole(gate[4]), whole(gate[5]), whole(gate[6] or '0')
local wanted = whole(ARGV[3])
if not (left and gone and gave and wanted) then
  return redis.error_reply('ERR tenure: `' .. KEYS[1] .. '` is not a shelf')
end
if left == 0 then
  return {'none'}
end
local number, units = plain(gave + 1), math.min(left, math.max(wanted, math.floor(left / 2)))
redis.call('HSET', KEYS[1], 'left', plain(left - units), 'gone', plain(gone + units), 'gave', number,
  'out', number .. ':' .. ARGV[2] .. ':' .. plain(units))
return {'given', number, plain(units)}

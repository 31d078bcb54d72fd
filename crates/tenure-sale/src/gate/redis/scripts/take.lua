#!lua
-- take.lua: reserve units for an entry that is not a buyer's request, and queue it, in one atomic
-- step. Neither the window nor the state of the item matters. The buyer's limit does: this entry
-- may reach the ledger before an order that was accepted earlier, and there must be room for both.
--
-- KEYS  1 gate   2 buyers   3 answers   4 orders
-- ARGV  1 key under which it is remembered   2 units   3 buyer who gets the units, or ''
--       4 number of shelves of the item   5 index of this one
--       from 6 on: fields and values of the entry
-- Reply {'queued', order}     the units are reserved
--       {'replayed', order}   it was done before
--       {'conflict', order}   it was done before, for other units
--       {'sold out', left}    fewer are left
--       {'limit'}             the buyer would exceed the limit
--       {'spread', number}    the item has another number of shelves
--       {'busy'}, {'no item'}, {'stale'}: nothing was changed

--@include whole.lua
--@include server.lua
--@include now.lua
--@include order_of.lua
--@include marks.lua
--@include may_write.lua

local gate = redis.call('HMGET', KEYS[1], 'epoch', 'state', 'run', 'unlimited', 'left', 'limit',
  'backlog_max', 'answers_kept', 'spread', 'gone', 'marked', 'forgets',
  'terms')
local epoch, state, unlimited = whole(gate[1]), gate[2], gate[4] == '1'
if not gate[1] then
  return {'no item'}
end
if gate[11] and not gate[9] then
  return {'stale'}
end
if (gate[9] or '1') ~= ARGV[4] then
  return {'spread', gate[9] or '1'}
end
if state == 'loading' or gate[3] ~= server() then
  return {'stale'}
end
local left, backlog_max, kept = whole(gate[5]), whole(gate[7]), whole(gate[8])
local spread, gone = whole(ARGV[4]), whole(gate[10] or '0')
if not (epoch and (unlimited or left) and backlog_max and kept and gone) then
  return redis.error_reply('ERR tenure: `' .. KEYS[1] .. '` is not a gate')
end
local units, buyer = whole(ARGV[2]), ARGV[3]
local answers = redis.call('HMGET', KEYS[3], ARGV[1], mark)
local before, found = answers[1], answers[2]
if gate[6] and buyer ~= '' then
  found = found == gate[1] and redis.call('HGET', KEYS[2], mark)
end
if not has_mark(gate[11], found, gate[1], state, gate[12]) then
  return {'stale'}
end
if before then
  local order, old = string.match(before, '^(%d+%-%d+)/(%d+)$')
  if not order then
    return redis.error_reply('ERR tenure: `' .. KEYS[3] .. '` contains an invalid answer')
  end
  return {whole(old) == units and 'replayed' or 'conflict', order}
end
local has
if gate[6] and buyer ~= '' then
  has = whole(redis.call('HGET', KEYS[2], buyer) or '0')
  local limit = whole(gate[6])
  if not (has and limit) then
    return redis.error_reply('ERR tenure: `' .. KEYS[2] .. '` contains invalid units')
  end
  if has + units > limit then
    return {'limit'}
  end
end
if redis.call('XLEN', KEYS[4]) >= backlog_max then
  return {'busy'}
end
if not unlimited and left < units then
  return {'sold out', plain(left)}
end

local forbidden = may_not_write(KEYS[4], KEYS[3])
if forbidden then
  return forbidden
end
local entry = {}
for n = 6, #ARGV do
  entry[n - 5] = ARGV[n]
end
entry[#entry + 1] = 'at'
entry[#entry + 1] = plain(clock())
if gate[13] and buyer ~= '' then
  entry[#entry + 1] = 'terms'
  entry[#entry + 1] = gate[13]
end
local order = redis.call('XADD', KEYS[4], 'NOMKSTREAM', plain(epoch) .. '-*', unpack(entry))
if not order then
  return {'stale'}
end
order = order_of(order, spread, whole(ARGV[5]))
if not unlimited then
  redis.call('HSET', KEYS[1], 'left', plain(left - units))
  if spread > 1 then
    redis.call('HSET', KEYS[1], 'gone', plain(gone + units))
  end
end
if has then
  redis.call('HSET', KEYS[2], buyer, plain(has + units))
end
redis.call('HSET', KEYS[3], ARGV[1], order .. '/' .. plain(units))
if state == 'closed' and redis.call('PTTL', KEYS[3]) < 0 then
  redis.call('PEXPIRE', KEYS[3], plain(kept))
end
return {'queued', order}

#!lua
-- ask.lua: decide on requests of concurrent buyers of one item, in order, in one atomic step.
--
-- KEYS  1 gate   2 buyers   3 answers   4 orders
-- ARGV  1 number of shelves of the item   2 index of this one
--       from 3 on, for each request: key of its remembered answer, buyer, its id, units
-- Reply one text of lines, because each value of a reply has its cost. The first: units left before
--       these requests, or nothing if they are unlimited or unknown. Then one for each request:
--       <order>            accepted: the order is queued and its units are reserved
--       replayed <order>   the same request was accepted before, as this order
--       conflict <order>   the same id was accepted before, for other units, as this order
--       spread <number>    the item has this number of shelves
--       no item, stale, not started, ended, paused, limit, busy, sold out: nothing was changed
--
-- Scripts do not roll back. So everything is read and checked before the first write. Then the
-- orders are written to the queue, and what they change together is written once, in this sequence:
-- stock, quotas, answers. The writes cannot fail: types were checked by reading, and memory by the
-- server before the script began. Should the queue refuse an order all the same, those before it
-- are still completed.

--@include whole.lua
--@include server.lua
--@include now.lua
--@include order_of.lua
--@include marks.lua
--@include may_write.lua

local requests, spread, shelf = (#ARGV - 2) / 4, whole(ARGV[1]), whole(ARGV[2])

local function all(line)
  return string.rep('\n' .. line, requests)
end

local gate = redis.call('HMGET', KEYS[1], 'epoch', 'state', 'run', 'unlimited', 'left', 'starts',
  'ends', 'limit', 'order_max', 'backlog_max', 'spread', 'gone', 'marked', 'forgets',
  'terms')
local epoch, state, run, unlimited = whole(gate[1]), gate[2], gate[3], gate[4] == '1'
if not gate[1] then
  return all('no item')
end
if gate[13] and not gate[11] then
  return all('stale')
end
if (gate[11] or '1') ~= ARGV[1] then
  return all('spread ' .. (gate[11] or '1'))
end
if state == 'loading' or run ~= server() then
  return all('stale')
end
local left, limit = whole(gate[5]), whole(gate[8])
local order_max, backlog_max, gone = whole(gate[9]), whole(gate[10]), whole(gate[12] or '0')
if not (epoch and (unlimited or left) and order_max and backlog_max and gone) or (gate[8] and not limit) then
  return redis.error_reply('ERR tenure: `' .. KEYS[1] .. '` is not a gate')
end

-- Most orders are for the same few numbers of units: each is read once.
local names, buyers, counts = {}, {}, {}
for n = 1, requests do
  names[n], buyers[n] = ARGV[4 * n - 1], ARGV[4 * n]
  local units = ARGV[4 * n + 2]
  if not counts[units] then
    counts[units] = whole(units)
    if not counts[units] then
      return redis.error_reply('ERR tenure: `' .. units .. '` is no number of units')
    end
  end
end
names[requests + 1], buyers[requests + 1] = mark, mark
local remembered, answers = {}, redis.call('HMGET', KEYS[3], unpack(names))
local found = answers[requests + 1]
for n = 1, requests do
  local answer = answers[n]
  if answer then
    if not string.find(answer, '^%d+%-%d+/%d+$') then
      return redis.error_reply('ERR tenure: `' .. KEYS[3] .. '` contains an invalid answer')
    end
    remembered[names[n]] = answer
  end
end
local has = {}
if limit then
  local units = redis.call('HMGET', KEYS[2], unpack(buyers))
  for n = 1, requests do
    has[buyers[n]] = whole(units[n] or '0')
    if not has[buyers[n]] then
      return redis.error_reply('ERR tenure: `' .. KEYS[2] .. '` contains invalid units')
    end
  end
  found = found == gate[1] and units[requests + 1]
end
if not has_mark(gate[13], found, gate[1], state, gate[14]) then
  return all('stale')
end
local backlog = redis.call('XLEN', KEYS[4])

local now = clock()
local starts, ends = whole(gate[6]), whole(gate[7])
local shut
if state == 'closed' or (ends and now >= ends) then
  shut = 'ended'
elseif state == 'draft' or (starts and now < starts) then
  shut = 'not started'
elseif state ~= 'open' then
  shut = 'paused'
end

local forbidden = not shut and may_not_write(KEYS[4], KEYS[3])
if forbidden then
  return forbidden
end

local function before(answer, units)
  local order, number = string.match(answer, '^(.+)/(%d+)$')
  return (number + 0 == units and 'replayed ' or 'conflict ') .. order
end

-- The server assigns the number, and never creates the queue: a new one would start at zero again.
local number, at, refused = plain(epoch) .. '-*', plain(now), nil
local terms = gate[15] and {'terms', gate[15]} or {} -- older versions load none
local kept, ordered, quotas = {KEYS[3]}, 0, {}
local reply = {unlimited and '' or plain(left)}
for n = 1, requests do
  local buyer, name, text, line = buyers[n], names[n], ARGV[4 * n + 2], nil
  local units = counts[text]
  if remembered[name] then
    line = before(remembered[name], units)
  elseif shut then
    line = shut
  elseif units > order_max or (limit and has[buyer] + units > limit) then
    line = 'limit'
  elseif backlog >= backlog_max then
    line = 'busy'
  elseif not unlimited and left < units then
    line = 'sold out'
  else
    local order = redis.pcall('XADD', KEYS[4], 'NOMKSTREAM', number,
      'buyer', buyer, 'request', ARGV[4 * n + 1], 'units', text, 'at', at, unpack(terms))
    if not order then
      shut, line = 'stale', 'stale'
    elseif order.err then
      refused = order
      break
    else
      order = order_of(order, spread, shelf)
      backlog, ordered = backlog + 1, ordered + units
      if not unlimited then
        left = left - units
      end
      if limit then
        has[buyer] = has[buyer] + units
        quotas[buyer] = has[buyer]
      end
      local answer = order .. '/' .. text
      remembered[name] = answer
      kept[#kept + 1] = name
      kept[#kept + 1] = answer
      line = order
    end
  end
  reply[n + 1] = line
end

if ordered > 0 then
  if not unlimited and spread == 1 then
    redis.call('HSET', KEYS[1], 'left', plain(left))
  elseif not unlimited then
    redis.call('HSET', KEYS[1], 'left', plain(left), 'gone', plain(gone + ordered))
  end
  if limit then
    local changed = {KEYS[2]}
    for buyer, units in pairs(quotas) do
      changed[#changed + 1] = buyer
      changed[#changed + 1] = plain(units)
    end
    redis.call('HSET', unpack(changed))
  end
  redis.call('HSET', unpack(kept))
end
return refused or table.concat(reply, '\n')

#!lua
-- ask.lua: decide on requests of concurrent buyers of one item, in order, in one atomic step.
--
-- KEYS  1 gate   2 buyers   3 answers   4 orders
-- ARGV  1 number of shelves of the item   2 index of this one
--       from 3 on, for each request: key of its remembered answer, buyer, its id, units
-- Reply for each request: word, order, units left; the last two are '' if there are none
--       accepted      the order is queued and its units are reserved
--       replayed      the same request was accepted before, as this order
--       conflict      the same id was accepted before, for other units, as this order
--       spread        the item has another number of shelves, which replaces the units
--       no item, stale, not started, ended, paused, limit, busy, sold out: nothing was changed
--
-- Scripts do not roll back. So everything is read and checked before the first write, and each
-- order is written in this sequence: queue, stock, quota, answer. The writes cannot fail: types
-- were checked by reading, and memory by the server before the script began.

--@include whole.lua
--@include server.lua
--@include now.lua
--@include order_of.lua

local requests, spread, shelf = (#ARGV - 2) / 4, whole(ARGV[1]), whole(ARGV[2])

local function all(word, number)
  local reply = {}
  for at = 1, 3 * requests, 3 do
    reply[at], reply[at + 1], reply[at + 2] = word, '', number or ''
  end
  return reply
end

local gate = redis.call('HMGET', KEYS[1], 'epoch', 'state', 'run', 'unlimited', 'left', 'starts',
  'ends', 'limit', 'order_max', 'backlog_max', 'spread', 'gone')
local epoch, state, run, unlimited = whole(gate[1]), gate[2], gate[3], gate[4] == '1'
if not gate[1] then
  return all('no item')
end
if (gate[11] or '1') ~= ARGV[1] then
  return all('spread', gate[11] or '1')
end
if state == 'loading' or run ~= server() then
  return all('stale')
end
local left, limit = whole(gate[5]), whole(gate[8])
local order_max, backlog_max, gone = whole(gate[9]), whole(gate[10]), whole(gate[12] or '0')
if not (epoch and (unlimited or left) and order_max and backlog_max and gone) or (gate[8] and not limit) then
  return redis.error_reply('ERR tenure: `' .. KEYS[1] .. '` is not a gate')
end

local names, buyers = {}, {}
for n = 1, requests do
  names[n], buyers[n] = ARGV[4 * n - 1], ARGV[4 * n]
end
local remembered = {}
for n, answer in ipairs(redis.call('HMGET', KEYS[3], unpack(names))) do
  if answer then
    local order, units = string.match(answer, '^(%d+%-%d+)/(%d+)$')
    if not order then
      return redis.error_reply('ERR tenure: `' .. KEYS[3] .. '` contains an invalid answer')
    end
    remembered[names[n]] = {order, whole(units)}
  end
end
local has = {}
if limit then
  for n, units in ipairs(redis.call('HMGET', KEYS[2], unpack(buyers))) do
    has[buyers[n]] = whole(units or '0')
    if not has[buyers[n]] then
      return redis.error_reply('ERR tenure: `' .. KEYS[2] .. '` contains invalid units')
    end
  end
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

local function refusal(buyer, units)
  if shut then
    return shut
  elseif units > order_max or (limit and has[buyer] + units > limit) then
    return 'limit'
  elseif backlog >= backlog_max then
    return 'busy'
  elseif not unlimited and left < units then
    return 'sold out'
  end
end

local function accept(buyer, request, units, name)
  -- The server assigns the number, and never creates the queue: a new one would start at zero again.
  local order = redis.call('XADD', KEYS[4], 'NOMKSTREAM', plain(epoch) .. '-*',
    'buyer', buyer, 'request', request, 'units', units, 'at', plain(now))
  if not order then
    shut = 'stale'
    return nil
  end
  order = order_of(order, spread, shelf)
  backlog = backlog + 1
  if not unlimited then
    left = left - units
    if spread == 1 then
      redis.call('HSET', KEYS[1], 'left', plain(left))
    else
      gone = gone + units
      redis.call('HSET', KEYS[1], 'left', plain(left), 'gone', plain(gone))
    end
  end
  if limit then
    has[buyer] = has[buyer] + units
    redis.call('HSET', KEYS[2], buyer, plain(has[buyer]))
  end
  redis.call('HSET', KEYS[3], name, order .. '/' .. units)
  remembered[name] = {order, units + 0}
  return order
end

local reply = {}
for n = 1, requests do
  local buyer, request, units = buyers[n], ARGV[4 * n + 1], whole(ARGV[4 * n + 2])
  local word, order = nil, ''
  local before = remembered[names[n]]
  if before then
    word, order = before[2] == units and 'replayed' or 'conflict', before[1]
  else
    word = refusal(buyer, units)
    if not word then
      order = accept(buyer, request, ARGV[4 * n + 2], names[n])
      word, order = order and 'accepted' or shut, order or ''
    end
  end
  reply[3 * n - 2], reply[3 * n - 1] = word, order
  reply[3 * n] = (unlimited or word == 'stale') and '' or plain(left)
end
return reply

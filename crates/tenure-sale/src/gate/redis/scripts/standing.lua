#!lua flags=no-writes
-- standing.lua: the state of an item at the gate; for a spread item, of one shelf.
--
-- KEYS  1 gate   2 buyers   3 answers   4 orders   5 dead
-- Reply nil if the gate does not know the item, otherwise
--       {1 if it can be trusted, else 0; state, or 'stopped'; epoch; units left or '';
--        number of the last change or ''; entries queued; entries pending; entries dead;
--        number of shelves or ''; units that arrived or ''; units that left or '';
--        the move in progress as number:to:units or '';
--        the indexes of keys that hold something else, separated by spaces;
--        the id of the newest entry that the queue was given, and of the oldest that it has, or ''}
--
-- It can be trusted if the server is the one that was loaded, and if it has everything that the
-- load and the orders since then have written.

--@include whole.lua
--@include server.lua
--@include now.lua
--@include marks.lua
--@include types.lua

local foreign, is_foreign = foreign_keys()
local fields = {'state', 'epoch', 'left', 'change', 'run', 'spread', 'came', 'gone', 'out', 'unlimited',
  'limit', 'marked', 'forgets', 'fence', 'order_max', 'backlog_max', 'answers_kept', 'stopped'}
local gate = {}
if not is_foreign[1] then
  for n, value in ipairs(redis.call('HMGET', KEYS[1], unpack(fields))) do
    gate[fields[n]] = value or nil
  end
end
if not next(gate) and #foreign == 0 then
  return false
end

-- Items of older versions have no spread.
if gate.epoch and not gate.marked then
  gate.spread = gate.spread or '1'
end

local function all_whole(...)
  for _, field in ipairs({...}) do
    if not whole(gate[field]) then
      return false
    end
  end
  return true
end

local function has_numbers()
  local limited, counted = gate.limit, gate.unlimited ~= '1'
  return all_whole('epoch', 'fence', 'change', 'spread', 'unlimited', 'order_max', 'backlog_max',
      'answers_kept')
    and (not limited or whole(limited)) and (not counted or whole(gate.left))
    and (not counted or gate.spread == '1' or all_whole('came', 'gone'))
end

local function has_marks()
  local found = redis.call('HGET', KEYS[3], mark)
  if gate.limit then
    found = found == gate.epoch and redis.call('HGET', KEYS[2], mark)
  elseif gate.marked and redis.call('EXISTS', KEYS[2]) == 1 then
    return false -- it had a limit
  end
  return has_mark(gate.marked, found, gate.epoch, gate.state, gate.forgets)
end

local trusted = #foreign == 0 and gate.run == server() and redis.call('EXISTS', KEYS[4]) == 1
if trusted and gate.state ~= 'loading' then
  trusted = has_numbers() and has_marks()
end
local queued, pending, dead, newest, oldest = 0, 0, 0, '', ''
if not is_foreign[4] then
  if redis.call('EXISTS', KEYS[4]) == 1 then
    local stream = redis.call('XINFO', 'STREAM', KEYS[4])
    for n = 1, #stream, 2 do
      if stream[n] == 'last-generated-id' then
        newest = stream[n + 1]
      elseif stream[n] == 'first-entry' and stream[n + 1] then
        oldest = stream[n + 1][1]
      end
    end
  end
  queued = redis.call('XLEN', KEYS[4])
  local summary = redis.pcall('XPENDING', KEYS[4], 'ledger')
  pending = summary.err and 0 or summary[1]
end
if not is_foreign[5] then
  dead = redis.call('XLEN', KEYS[5])
end
local function number(field)
  return whole(gate[field]) and gate[field] or ''
end
return {
  trusted and 1 or 0, gate.stopped and 'stopped' or gate.state or '', whole(gate.epoch) and gate.epoch or '0', number('left'),
  number('change'), queued, pending, dead, number('spread'), number('came'), number('gone'),
  gate.out or '', table.concat(foreign, ' '), newest, oldest,
}

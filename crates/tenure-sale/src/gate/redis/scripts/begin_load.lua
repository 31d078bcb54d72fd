#!lua
-- begin_load.lua: stop selling and begin to load the item anew, in one atomic step.
--
-- KEYS  1 gate   2 buyers   3 answers   4 orders   5 dead   6 answers of the epoch that ends
-- ARGV  1 epoch   2 fence   3 number of shelves of the item
-- Reply {'begun'}          nothing is sold until the load is finished
--       {'refused'}        a load with a greater fence, or with this epoch, came first
--       {'foreign', id}    the queue has an id of this epoch or a later one: nothing could be queued
--
-- Keys that hold something else are deleted: what the gate had there is gone, and the ledger has
-- what it needs to go on.

--@include whole.lua
--@include server.lua
--@include now.lua
--@include marks.lua
--@include types.lua

local epoch, fence = whole(ARGV[1]), whole(ARGV[2])
if not (epoch and epoch > 0 and fence) then
  return redis.error_reply('ERR tenure: begin_load: invalid epoch or fence')
end
local foreign, is_foreign = foreign_keys()
local gate = is_foreign[1] and {} or redis.call('HMGET', KEYS[1], 'epoch', 'fence', 'state', 'run',
  'ended', 'stopped')
-- One that was stopped has everything that it had on sale.
local loading = gate[3] == 'loading' and not gate[6]
-- Numbers that are none are as good as a gate that was deleted.
local seen_epoch, seen_fence = whole(gate[1]) or 0, whole(gate[2]) or 0
-- A finished epoch is not begun again: its answers would be lost.
local again = epoch == seen_epoch and loading
if fence < seen_fence or not (epoch > seen_epoch or again) then
  return {'refused'}
end
local last
if not is_foreign[4] and redis.call('EXISTS', KEYS[4]) == 1 then
  local stream = redis.call('XINFO', 'STREAM', KEYS[4])
  for n = 1, #stream, 2 do
    if stream[n] == 'last-generated-id' then
      last = stream[n + 1]
    end
  end
  if tonumber(string.match(last, '^%d+')) >= epoch then
    return {'foreign', last}
  end
end

-- How many entries there were in the epoch that ends here, if nothing was lost. Nothing is added
-- from now on, so it stays true.
local function count_entries()
  if loading then
    return gate[5]
  end
  if not last or seen_epoch == 0 or gate[4] ~= server() then
    return nil
  end
  local of, number = string.match(last, '^(%d+)-(%d+)$')
  number = whole(number)
  if of == plain(seen_epoch) then
    return number and plain(seen_epoch) .. ':' .. plain(number + 1)
  end
  return plain(seen_epoch) .. ':0'
end
local ended = count_entries()

for _, n in ipairs(foreign) do
  redis.call('UNLINK', KEYS[n])
end
local created = redis.pcall('XGROUP', 'CREATE', KEYS[4], 'ledger', '0', 'MKSTREAM')
if type(created) == 'table' and created.err and not string.find(created.err, 'BUSYGROUP', 1, true) then
  return created
end
-- Answers say whose a lost order was. Those of a load that was not finished are not complete.
if not loading and redis.call('EXISTS', KEYS[3]) == 1 then
  redis.call('UNLINK', KEYS[6])
  redis.call('RENAME', KEYS[3], KEYS[6])
end
redis.call('UNLINK', KEYS[2], KEYS[3])
redis.call('HSET', KEYS[2], mark, plain(epoch))
redis.call('HSET', KEYS[3], mark, plain(epoch))
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'state', 'loading', 'epoch', plain(epoch), 'fence', plain(fence),
  'run', server(), 'spread', ARGV[3])
if ended then
  redis.call('HSET', KEYS[1], 'ended', ended)
end
return {'begun'}

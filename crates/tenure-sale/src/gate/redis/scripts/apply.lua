#!lua flags=allow-oom
-- apply.lua: apply changes of the ledger to the gate, in one atomic step. They take effect once:
-- the number of the last change is compared and set.
--
-- KEYS  1 gate   2 buyers   3 answers
-- ARGV  1 epoch   2 number of the last change before   3 number of the last change after
--       4 units that are returned   5 new state, or ''   6 '1' if there are new terms, or ''
--       7 starts   8 ends   9 limit   10 order_max   11 backlog_max   12 answers_kept
--       13 pay_within; '' if none   14 number of shelves of the item
--       from 15 on: buyer, units that it returns
-- Reply {'done'}         the gate is at the new number
--       {'at', number}   the gate is at another number, nothing was changed
--       {'spread', number}   the item has another number of shelves
--       {'stale'}        another epoch or server, or what buyers have must be loaded again

--@include whole.lua
--@include server.lua
--@include now.lua
--@include terms.lua

local gate = redis.call('HMGET', KEYS[1], 'epoch', 'state', 'run', 'change', 'unlimited', 'left',
  'limit', 'answers_kept', 'forgets', 'spread', 'came', 'marked')
if gate[1] ~= ARGV[1] or gate[2] == 'loading' or gate[3] ~= server() or gate[12] and not gate[10] then
  return {'stale'}
end
if (gate[10] or '1') ~= ARGV[14] then
  return {'spread', gate[10] or '1'}
end
if not whole(gate[4]) then
  return {'stale'}
end
if gate[4] ~= ARGV[2] then
  return {'at', gate[4]}
end
local now, unlimited = clock(), gate[5] == '1'
local state, limit, kept = gate[2], gate[7], whole(gate[8])
local reopened = state == 'closed' and ARGV[5] ~= '' and ARGV[5] ~= 'closed'
if reopened and gate[9] and now >= whole(gate[9]) then
  return {'stale'}
end
if ARGV[6] == '1' then
  if ARGV[9] ~= '' and not limit then
    return {'stale'}
  end
  kept = whole(ARGV[12])
end
local left = unlimited and 0 or whole(gate[6])
local sum = left and whole(plain(left + whole(ARGV[4])))
local came = whole(gate[11] or '0')
if not (kept and sum and came) then
  return redis.error_reply('ERR tenure: the units in `' .. KEYS[1] .. '` are not a number, or too many')
end
local quota = {}
for n = 15, limit and #ARGV or 0, 2 do
  local has = whole(redis.call('HGET', KEYS[2], ARGV[n]) or '0')
  if not has then
    return redis.error_reply('ERR tenure: `' .. KEYS[2] .. '` contains invalid units')
  end
  quota[ARGV[n]] = has - whole(ARGV[n + 1])
end

redis.call('HSET', KEYS[1], 'change', ARGV[3])
if not unlimited then
  redis.call('HSET', KEYS[1], 'left', plain(sum))
  if gate[11] then
    redis.call('HSET', KEYS[1], 'came', plain(came + whole(ARGV[4])))
  end
end
for buyer, has in pairs(quota) do
  if has > 0 then
    redis.call('HSET', KEYS[2], buyer, plain(has))
  else
    redis.call('HDEL', KEYS[2], buyer)
  end
end
if ARGV[6] == '1' then
  for n, field in ipairs({'starts', 'ends', 'limit', 'order_max', 'backlog_max', 'answers_kept'}) do
    if ARGV[6 + n] == '' then
      redis.call('HDEL', KEYS[1], field)
    else
      redis.call('HSET', KEYS[1], field, ARGV[6 + n])
    end
  end
  redis.call('HSET', KEYS[1], 'terms', terms_of(ARGV[9], ARGV[13]))
  if ARGV[9] == '' then
    redis.call('UNLINK', KEYS[2])
  end
end
if ARGV[5] ~= '' then
  redis.call('HSET', KEYS[1], 'state', ARGV[5])
  if ARGV[5] == 'closed' then
    redis.call('HSET', KEYS[1], 'forgets', plain(now + kept * 1000))
    redis.call('PEXPIRE', KEYS[2], plain(kept))
    redis.call('PEXPIRE', KEYS[3], plain(kept))
  else
    redis.call('HDEL', KEYS[1], 'forgets')
    redis.call('PERSIST', KEYS[2])
    redis.call('PERSIST', KEYS[3])
  end
end
return {'done'}

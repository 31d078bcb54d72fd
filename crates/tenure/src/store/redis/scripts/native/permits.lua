-- permits.lua: the permits of a semaphore. Included by the scripts of semaphores, which set `queue`,
-- `alive`, `permits`, `slots`, `unused` and `wanted`.
--
-- The key of a semaphore is `tenure:semaphore:` and its limit. `permits` is a sorted set of lease ids by
-- the end of the lease, in us of the server's clock. `slots` is a hash: the numbers of the slots of each
-- lease, separated by commas, and in `opened` how many slots were ever given out. `unused` is a sorted
-- set of those that were given back. `wanted` is a hash of what a waiter wants, if that is not one slot:
-- how many, and a `+` if it may overtake wider requests.
--
-- So the number of slots in use is a difference of two counts, and no slot has two leases.
local SEMAPHORE = 'tenure:semaphore:'

-- The limit of the semaphore that this value of the key stands for, or nil.
local function limit_of(value)
  if value and string.sub(value, 1, #SEMAPHORE) == SEMAPHORE then
    return tonumber(string.sub(value, #SEMAPHORE + 1))
  end
end

local function opened_slots()
  return tonumber(redis.call('HGET', slots, 'opened')) or 0
end

-- How many slots have a lease, or had one that has ended and was not dropped yet. If the slots were lost
-- and leases were not, all are in use until those leases end.
local function slots_in_use()
  local opened = opened_slots()
  if opened == 0 and redis.call('EXISTS', permits) == 1 then
    return math.huge
  end
  return opened - redis.call('ZCARD', unused)
end

-- Gives the slots of a lease back. True if it had any.
local function give_back(id)
  local held = redis.call('HGET', slots, id)
  for slot in string.gmatch(held or '', '%d+') do
    redis.call('ZADD', unused, slot, slot)
  end
  redis.call('HDEL', slots, id)
  redis.call('ZREM', permits, id)
  return held and true
end

-- Gives this lease the lowest free slots. The caller has checked that there are enough.
local function take_slots(id, count, ends)
  local opened = opened_slots()
  local taken = redis.call('ZRANGE', unused, 0, count - 1)
  if #taken > 0 then
    redis.call('ZREM', unused, unpack(taken))
  end
  while #taken < count do
    taken[#taken + 1] = string.format('%d', opened)
    opened = opened + 1
  end
  local text = table.concat(taken, ',')
  redis.call('HSET', slots, 'opened', opened, id, text)
  redis.call('ZADD', permits, string.format('%.0f', ends), id)
  return text
end

-- Gives back the slots of leases that have ended; a thousand at most, the next call goes on.
local function drop_ended(now)
  local ended = redis.call(
    'ZRANGEBYSCORE', permits, '-inf', string.format('%.0f', now), 'LIMIT', 0, 1000)
  for _, id in ipairs(ended) do
    give_back(id)
  end
end

-- Keeps the semaphore for a day after its last lease, so that its limit is remembered. If no lease is
-- left, the slots begin anew.
local function keep_semaphore(semaphore, now)
  local last = redis.call('ZRANGE', permits, -1, -1, 'WITHSCORES')[2]
  if not last then
    redis.call('DEL', slots, unused)
  end
  local end_ms = math.ceil(math.max(tonumber(last or 0), now) / 1000) + 86400000
  for _, key in ipairs({semaphore, permits, slots, unused, wanted}) do
    redis.call('PEXPIREAT', key, string.format('%.0f', end_ms))
  end
end

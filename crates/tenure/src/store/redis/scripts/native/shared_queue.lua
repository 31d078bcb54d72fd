-- shared_queue.lua: readers that wait for a lock. Included after shared.lua by the scripts that admit
-- and wake them.
--
-- A reader waits for every living waiter ahead of it that wants the lock alone, so that these do not
-- starve.

-- Whether the lease id of a waiter is that of a reader.
local function is_reader(id)
  return string.find(id, '^tenure:%x+:0000[^0]') ~= nil
end

-- Removes dead waiters: see living.lua. True if there were any: readers that only waited for them must
-- be woken. With pcall: a key of the wrong type must not block the lock.
local function drop_dead(queue, alive, now)
  local now_ms = string.format('(%.0f', math.floor(now / 1000))
  local dead = redis.pcall('ZRANGEBYSCORE', alive, '-inf', now_ms, 'LIMIT', 0, 1000)
  if #dead > 0 then
    redis.pcall('ZREM', queue, unpack(dead))
    redis.pcall('ZREM', alive, unpack(dead))
  end
  return #dead > 0
end

-- The readers at the head of the queue, and the first waiter that is not one of them, or `before`.
-- A thousand at most: the others ask for themselves. If there are more readers, the second value is the
-- first of them, because nobody has looked who waits behind them.
local function readers_first(queue, before)
  local first = {}
  local waiters = redis.pcall('ZRANGE', queue, 0, 999)
  for _, waiter in ipairs(waiters.err and {} or waiters) do
    if waiter == before or not is_reader(waiter) then
      return first, waiter
    end
    first[#first + 1] = waiter
  end
  return first, #first == 1000 and first[1] or nil
end

-- Wakes waiting readers: they ask again, and find that they hold the lock or may share it.
local function wake_readers(queue, value)
  redis.pcall('PUBLISH', (string.gsub(queue, 'tenure:queue', 'tenure:wake', 1)), value)
end

-- Starts a phase with this reader and with those at the head of the queue. Those hold the lock for as
-- long as an offer lasts, and accept by acquiring.
local function begin_phase(lock, readers, queue, alive, fence, id, ends, now)
  redis.call('DEL', readers)
  redis.call('ZADD', readers, ends, id)
  redis.pcall('ZREM', queue, id)
  redis.pcall('ZREM', alive, id)
  local value = PHASE .. string.format('%.0f', fence)
  redis.call('SET', lock, value, 'PX', 1000)
  local first = readers_first(queue)
  if #first > 0 then
    local entries = {}
    for _, reader in ipairs(first) do
      local ttl = tonumber(string.match(reader, ':(%d+)$')) or 2000
      entries[#entries + 1] = now + math.max(1, math.min(ttl, 2000)) * 1000
      entries[#entries + 1] = reader
    end
    redis.call('ZADD', readers, unpack(entries))
    redis.pcall('ZREM', queue, unpack(first))
    redis.pcall('ZREM', alive, unpack(first))
    wake_readers(queue, value)
  end
  set_end(lock, readers)
end

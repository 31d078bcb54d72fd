#!lua
-- acquire_several.lua: acquire several free locks in one atomic step, all of them or none.
--
-- KEYS  1..n locks   n+1..2n their own fence counters
--       2n+1 fence counter of all locks, or again the first lock's own
--       [2n+2..3n+1 metadata]
-- ARGV  1 number of locks   2 ttl in ms   3 latest server time in us at which they may be granted
--       4 the only primary that may grant, by its run id and replication id, or `` for any
--       5..n+4 lease ids   [n+5.. metadata of each lease: field, value, field, value ...]
-- Reply {fence, ...}                           each lock is held by its lease for ttl ms from now, with
--                                              its fence
--       {'busy', lock, lease id, ms left}      the first lock that another lease holds, by its number;
--                                              nothing was changed
--       {'late', server time in us}            the latest time has passed, nothing was changed
--       {'master', master}                     this is a different primary, nothing was changed
--       {'type', lock, type}                   the key of this lock is not a string, nothing was
--                                              changed
--
-- A repeated attempt that was already granted finds its own leases, extends them to a full ttl and
-- mints greater fences. A lock that is offered to a waiter is busy, as for acquire.lua.
--@include whole.lua

local count, ttl, latest = whole(ARGV[1]), whole(ARGV[2]), whole(ARGV[3])
if not (count and ttl and latest) or count < 1 or ttl < 1 or #KEYS < 2 * count + 1
  or #ARGV < 4 + count then
  return redis.error_reply('ERR tenure: acquire_several: invalid number')
end
local has_meta = #KEYS > 2 * count + 1
if has_meta and (#KEYS ~= 3 * count + 1 or (#ARGV - count) % 2 ~= 0) then
  return redis.error_reply('ERR tenure: acquire_several: metadata must be field-value pairs')
end
local primary = ARGV[4]
--@include in_time.lua

local found = redis.pcall('MGET', unpack(KEYS, 1, count))
if found.err then
  -- A user that may not use MGET.
  found = {}
  for i = 1, count do
    local one = redis.pcall('GET', KEYS[i])
    if type(one) == 'table' then
      if string.sub(one.err, 1, 9) ~= 'WRONGTYPE' then
        return one
      end
      one = false
    end
    found[i] = one
  end
end
for i = 1, count do
  if found[i] and found[i] ~= ARGV[4 + i] then
    return {'busy', i, found[i], redis.call('PTTL', KEYS[i])}
  end
end

-- From here on something is written. Redis does not roll back, so `undo` does.
local taken = {}
local function undo(reply)
  if #taken > 0 then
    redis.call('DEL', unpack(taken))
  end
  return reply
end
for i = 1, count do
  if found[i] then
    redis.call('PEXPIRE', KEYS[i], ttl)
  else
    local set = redis.pcall('SET', KEYS[i], ARGV[4 + i], 'NX', 'PX', ttl)
    if not set then
      -- MGET finds nothing where the key is not a string.
      return undo({'type', i, redis.call('TYPE', KEYS[i]).ok})
    end
    if set.err then
      return undo(set)
    end
    taken[#taken + 1] = KEYS[i]
  end
end

-- The next fence of a lock, or an error to return.
local function mint(KEYS)
  local fences, was_free = 1, false
--@include native/fence.lua
  return fence
end
local shared, minted_fences = KEYS[2 * count + 1], {}
local is_for_all = shared ~= KEYS[count + 1]
  and redis.call('EXISTS', unpack(KEYS, count + 1, 2 * count)) == 0
for i = 1, count do
  local own = KEYS[count + i]
  -- No lock has a counter of its own: the shared one is above all their fences, and one fence does
  -- for all. What counts is the order of the grants of one lock.
  local fence = is_for_all and minted_fences[1]
    or mint({KEYS[i], shared ~= KEYS[count + 1] and shared or own, own})
  if type(fence) ~= 'number' then
    return undo(fence)
  end
  minted_fences[i] = fence
end
if has_meta then
  for i = 1, count do
    local meta = KEYS[2 * count + 1 + i]
    redis.call('DEL', meta)
    redis.call('HSET', meta, 'lease', ARGV[4 + i], unpack(ARGV, 5 + count))
    redis.call('PEXPIRE', meta, ttl)
  end
end
return minted_fences

#!lua
-- The script of the version in which each lock had a fence counter of its own. Kept for tests.
--
-- acquire.lua: acquire a free lock, or report its holder, in one atomic step.
--
-- KEYS  1 lock   2 fence counter   [3 queue of waiters   4 times until which they count as living]
--       [5 metadata]
-- ARGV  1 lease id   2 ttl in ms   3 latest server time in us at which this may be granted
--       4 number of fences to reserve
--       [5 `queue` to join the queue if the lock is busy, or ``]
--       [6 the only primary that may grant, by its run id and replication id, or `` for any]
--       [7.. metadata: field, value, field, value ...]
-- Reply fence                          the lock is held by this lease for ttl ms from now, with this
--                                      fence and the reserved ones after it
--       {'busy', lease id, ms left}    another lease holds it; -1 ms left means no expiry
--       {'late', server time in us}    the latest time has passed, nothing was changed
--       {'master', master}             this is a different primary, nothing was changed
--       {'type', type}                 the key is not a string, nothing was changed
--
-- A repeated attempt that was already granted finds its own lease, extends it to a full ttl and
-- reserves greater fences. The same happens when release.lua has offered the lock to this lease.
--
-- Optimized for speed: most attempts find the lock free, and every command and argument counts.

local latest, fences = tonumber(ARGV[3]), tonumber(ARGV[4])
if not (latest and fences) or latest % 1 ~= 0 or latest < 0 or latest > 9007199254740991
  or fences % 1 ~= 0 or fences < 1 or fences > 1000000 then
  return redis.error_reply('ERR tenure: acquire: invalid number')
end
if #ARGV > 6 and #ARGV % 2 ~= 0 then
  return redis.error_reply('ERR tenure: acquire: metadata must be field-value pairs')
end
if ARGV[6] and ARGV[6] ~= '' then
-- master.lua: identify the primary that runs this script. Included by the scripts that grant, and by
-- reign.lua.

-- The run id, which changes with every restart, and the replication id, which changes with every
-- promotion, even if the same process is demoted and promoted again. Found by plain search, because
-- a pattern match would take longer than the rest of the script.
local function master()
  local info = redis.call('INFO', 'server', 'replication')
  local _, run = string.find(info, 'run_id:', 1, true)
  local _, replication = string.find(info, 'master_replid:', run or 1, true)
  if not (run and replication) then
    return ''
  end
  return string.sub(info, run + 1, run + 40) .. ':' .. string.sub(info, replication + 1, replication + 40)
end

  local found = master()
  if found ~= ARGV[6] then
    return {'master', found}
  end
end
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
if now > latest then
  return {'late', string.format('%.0f', now)}
end

-- An invalid ttl fails here, before anything is written.
local was_free = redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])
if not was_free then
  local found = redis.pcall('GET', KEYS[1])
  if type(found) == 'table' then
    if string.sub(found.err, 1, 9) ~= 'WRONGTYPE' then
      return found
    end
    return {'type', redis.call('TYPE', KEYS[1]).ok}
  end
  if found ~= ARGV[1] then
    if ARGV[5] == 'queue' then
      -- It counts as living from the start, in the same step. stay.lua extends that.
      redis.call('ZADD', KEYS[4], math.floor(now / 1000) + 6000, ARGV[1])
      redis.call('ZADD', KEYS[3], 'NX', now, ARGV[1])
      -- Every waiter polls at least once a day. Both keys expire together: without its time a
      -- waiter would count as living forever.
      redis.call('PEXPIRE', KEYS[3], 86400000)
      redis.call('PEXPIRE', KEYS[4], 86400000)
    end
    return {'busy', found, redis.call('PTTL', KEYS[1])}
  end
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end

-- fence.lua: reserve `fences` fences in KEYS[2]; the first of them is `fence`. Included by
-- acquire.lua and turn.lua, which set the server's `clock`, the same as `now` in us, and whether
-- the lock `was_free`.
--
-- The counter is a stream that keeps no entries. XADD assigns an id from the server's clock in ms
-- and a sequence number, always greater than the last id; a new counter starts with the clock in
-- us. So a fence is the clock, or the last fence plus one if the clock is not ahead of that. Fences
-- increase even if the counter was lost or restored from an older copy, as long as the clock is not
-- set back; and even if the clock is set back, as long as the counter is kept. They stay below
-- 2^53, where Lua's numbers are exact.
local id = redis.pcall('XADD', KEYS[2], 'NOMKSTREAM', 'MAXLEN', '0', '*', 'f', '')
if not id then
  local us = clock[2] + 0
  local by_clock = string.format('%s%03d-%d', clock[1], math.floor(us / 1000), us % 1000)
  id = redis.pcall('XADD', KEYS[2], 'MAXLEN', '0', by_clock, 'f', '')
end
local trouble, fence, last = type(id) == 'table' and id.err, 0, 0
if not trouble then
  local dash = string.find(id, '-', 1, true)
  local ms, sequence = string.sub(id, 1, dash - 1) + 0, string.sub(id, dash + 1) + 0
  fence = ms * 1000 + sequence
  last = fence + fences - 1
  if last > 9007199254740990 then
    trouble = 'exhausted'
  elseif fences > 1 or sequence > 999 then
    -- The sequence must stay below 1000: carry over.
    redis.call('XSETID', KEYS[2], string.format('%.0f-%.0f', math.floor(last / 1000), last % 1000))
  end
end
if not trouble then
  -- Kept for a day after the clock has passed the fence: from then on the clock alone is enough.
  local kept
  if last > now + 1000000 then
    kept = redis.pcall('PEXPIREAT', KEYS[2], string.format('%.0f', math.floor(last / 1000) + 86400000))
  else
    kept = redis.pcall('PEXPIRE', KEYS[2], '86401000')
  end
  trouble = type(kept) == 'table' and kept.err
end
if trouble then
  if was_free then
    redis.call('DEL', KEYS[1])
  end
  if string.sub(trouble, 1, 9) == 'WRONGTYPE' then
    trouble = 'ERR tenure: the fence counter `' .. KEYS[2] .. '` is not a stream'
  elseif string.find(trouble, 'exhausted', 1, true) then
    trouble = 'ERR tenure: the fence counter `' .. KEYS[2] .. '` is exhausted'
  end
  return redis.error_reply(trouble)
end


if ARGV[5] == 'queue' then
  -- With pcall: the lock is already acquired, and a key of the wrong type must not hide that.
  if redis.pcall('ZREM', KEYS[3], ARGV[1]) == 1 then
    redis.pcall('ZREM', KEYS[4], ARGV[1])
  end
end
if KEYS[5] then
  redis.call('DEL', KEYS[5])
  redis.call('HSET', KEYS[5], 'lease', ARGV[1], unpack(ARGV, 7))
  redis.call('PEXPIRE', KEYS[5], ARGV[2])
end
return fence

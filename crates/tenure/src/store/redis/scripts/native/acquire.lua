#!lua
-- acquire.lua: acquire a free lock, or report its holder, in one atomic step.
--
-- KEYS  1 lock   2 fence counter   3 the lock's own fence counter, or again the same
--       [4 queue of waiters   5 times until which they count as living]   [6 metadata]
-- ARGV  1 lease id   2 ttl in ms   3 latest server time in us at which this may be granted
--       4 number of fences to reserve
--       [5 `queue` to join the queue if the lock is busy, or ``]
--       [6 the only primary that may grant, by its run id and replication id, or `` for any]
--       [7.. metadata: field, value, field, value ...; `tenure:since` and `tenure:term`, if given,
--       come first and without values]
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
local primary = ARGV[6] or ''
--@include in_time.lua

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
      redis.call('ZADD', KEYS[5], math.floor(now / 1000) + 6000, ARGV[1])
      redis.call('ZADD', KEYS[4], 'NX', now, ARGV[1])
      -- Every waiter polls at least once a day. Both keys expire together: without its time a
      -- waiter would count as living forever.
      redis.call('PEXPIRE', KEYS[4], 86400000)
      redis.call('PEXPIRE', KEYS[5], 86400000)
    end
    return {'busy', found, redis.call('PTTL', KEYS[1])}
  end
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
--@include known_term.lua
  if known_term then
    redis.call('PEXPIRE', KEYS[6], ARGV[2])
    return known_term
  end
end

--@include native/fence.lua

if ARGV[5] == 'queue' then
  -- With pcall: the lock is already acquired, and a key of the wrong type must not hide that.
  if redis.pcall('ZREM', KEYS[4], ARGV[1]) == 1 then
    redis.pcall('ZREM', KEYS[5], ARGV[1])
  end
end
if KEYS[6] then
  local meta, meta_lease, meta_ttl, fields_at, term = KEYS[6], ARGV[1], ARGV[2], 7, fence
--@include term.lua
end
return fence

#!lua
-- permit_acquire.lua: get permits of a semaphore, or report that too few are free, in one atomic step.
--
-- KEYS  1 semaphore   2 fence counter   3 the semaphore's own fence counter, or again the same
--       4 queue of waiters   5 times until which they count as living   6 permits   7 slots
--       8 slots that were given back   9 what waiters want
-- ARGV  1 lease id   2 ttl in ms   3 latest server time in us at which this may be granted
--       4 limit   5 how many permits   6 1 if it may overtake those that wait for more, or 0
--       7 `queue` to join the queue if too few are free, or ``
--       8 the only primary that may grant, by its run id and replication id, or `` for any
-- Reply {fence, slots}                 this lease has these slots for ttl ms from now, with this fence
--       {'busy', `tenure:semaphore:` and limit, ms until the first lease ends}
--       {'limit', limit}               the semaphore has another limit, nothing was changed
--       {'lock', lease id}             the key is a lock, nothing was changed
--       {'late', server time in us}    the latest time has passed, nothing was changed
--       {'master', master}             this is a different primary, nothing was changed
--       {'type', type}                 the key is not a string, nothing was changed
--
-- A repeated attempt that was already granted finds its own slots and extends its lease to a full ttl.
-- So does a waiter that was admitted.
--@include whole.lua

local ttl, latest = whole(ARGV[2]), whole(ARGV[3])
local limit, count = whole(ARGV[4]), whole(ARGV[5])
if not (ttl and latest and limit and count) or ttl < 1 or count < 1 or count > limit then
  return redis.error_reply('ERR tenure: permit_acquire: invalid number')
end
local primary = ARGV[8]
--@include in_time.lua

local semaphore, lease, overtakes = KEYS[1], ARGV[1], ARGV[6] == '1'
local queue, alive, permits, slots, unused, wanted =
  KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9]
--@include native/permits.lua
--@include native/permit_queue.lua
local found = redis.pcall('GET', semaphore)
if type(found) == 'table' then
  if string.sub(found.err, 1, 9) ~= 'WRONGTYPE' then
    return found
  end
  return {'type', redis.call('TYPE', semaphore).ok}
end
if found and not limit_of(found) then
  return {'lock', found}
end
if found and limit_of(found) ~= limit then
  return {'limit', limit_of(found)}
end
if not found then
  redis.call('SET', semaphore, SEMAPHORE .. string.format('%d', limit), 'PX', 86400000)
end

drop_ended(now)
local held = redis.call('HGET', slots, lease)
if not held then
  local still = admit(limit, now)
  held = redis.call('HGET', slots, lease)
  local is_next = overtakes or #still == 0 or still[1] == lease
  if not held and not (is_next and count <= limit - slots_in_use()) then
    if ARGV[7] == 'queue' then
      if count ~= 1 or overtakes then
        redis.call('HSET', wanted, lease, string.format('%d%s', count, overtakes and '+' or ''))
      end
      -- It counts as living from the start, in the same step. stay.lua extends that.
      redis.call('ZADD', alive, math.floor(now / 1000) + 6000, lease)
      redis.call('ZADD', queue, 'NX', now, lease)
      redis.call('PEXPIRE', queue, 86400000)
      redis.call('PEXPIRE', alive, 86400000)
    end
    keep_semaphore(semaphore, now)
    local first = redis.call('ZRANGE', permits, 0, 0, 'WITHSCORES')[2]
    local left_us = first and math.max(0, first - now) or 0
    return {'busy', SEMAPHORE .. string.format('%d', limit), math.ceil(left_us / 1000)}
  end
end

local fences, was_free = 1, false
--@include native/fence.lua
if held then
  redis.call('ZADD', permits, string.format('%.0f', now + ttl * 1000), lease)
else
  held = take_slots(lease, count, now + ttl * 1000)
end
leave_queue(lease)
keep_semaphore(semaphore, now)
return {fence, held}

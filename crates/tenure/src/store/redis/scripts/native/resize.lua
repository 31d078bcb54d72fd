#!lua flags=allow-oom
-- resize.lua: change the limit of a semaphore. Leases keep their slots; with a lower limit nobody gets a
-- permit until enough were given back.
--
-- KEYS  1 semaphore   2 queue of waiters   3 times until which they count as living   4 permits
--       5 slots   6 slots that were given back   7 what waiters want
-- ARGV  1 limit
-- Reply {'resized'}            it has this limit now
--       {'lock', lease id}     the key is a lock, nothing was changed
--       {'type', type}         the key is not a string, nothing was changed
--@include whole.lua

local semaphore = KEYS[1]
local queue, alive, permits, slots, unused, wanted =
  KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]
--@include native/permits.lua
--@include native/permit_queue.lua
local limit = whole(ARGV[1])
if not limit or limit < 1 then
  return redis.error_reply('ERR tenure: resize: invalid limit')
end
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
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
redis.call('SET', semaphore, SEMAPHORE .. string.format('%d', limit), 'PX', 86400000)
drop_ended(now)
admit(limit, now)
keep_semaphore(semaphore, now)
return {'resized'}

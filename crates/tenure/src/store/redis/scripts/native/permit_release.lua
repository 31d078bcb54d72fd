#!lua flags=allow-oom
-- permit_release.lua: give permits back, and give them to the next living waiters.
--
-- KEYS  1 semaphore   2 queue of waiters   3 times until which they count as living   4 permits
--       5 slots   6 slots that were given back   7 what waiters want
-- ARGV  1 lease id   2 lease id of a waiter that leaves the queue as well, or ``
-- Reply 1               it was held
--       {0, lease id}   it was not held; who holds the key as a lock, or nil. The waiter left the queue
local semaphore, id = KEYS[1], ARGV[1]
local queue, alive, permits, slots, unused, wanted =
  KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]
--@include native/permits.lua
--@include native/permit_queue.lua

local found = redis.pcall('GET', semaphore)
if type(found) == 'table' then
  if string.sub(found.err, 1, 9) ~= 'WRONGTYPE' then
    return found -- a missing permission does not mean that the lease is missing
  end
  found = false
end
leave_queue(id)
if ARGV[2] ~= '' then
  leave_queue(ARGV[2])
end
local limit = limit_of(found)
if not limit then
  return {0, found}
end
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
drop_ended(now)
local was_held = give_back(id)
admit(limit, now)
keep_semaphore(semaphore, now)
return was_held and 1 or {0, false}

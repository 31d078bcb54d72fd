#!lua flags=allow-oom
-- shared_release.lua: end the lease of a reader. After the last one, offer the lock to the next
-- living waiter.
--
-- KEYS  1 lock   2 queue of waiters   3 times until which they count as living   4 fence counter
--       5 the lock's own fence counter, or again the same   6 readers
-- ARGV  1 lease id, or `tenure:shared:` and the fence to end the leases of all readers   2 lease id of a waiter that leaves the queue as well, or ``
-- Reply 1               it was held
--       {1, lease id}   it was held, and the lock is now offered to this waiter
--       {0, lease id}   it was not held; the current holder, or nil. The waiter left the queue
--@include native/shared.lua
--@include native/shared_queue.lua

local lock, queue, alive, readers, id = KEYS[1], KEYS[2], KEYS[3], KEYS[6], ARGV[1]
local found = redis.pcall('GET', lock)
if type(found) == 'table' then
  if string.sub(found.err, 1, 9) ~= 'WRONGTYPE' then
    return found -- a missing permission does not mean that the lease is missing
  end
  found = false
end
for _, leaving in ipairs({id, ARGV[2] ~= '' and ARGV[2] or nil}) do
  redis.pcall('ZREM', queue, leaving)
  redis.pcall('ZREM', alive, leaving)
end
local was_held = found == id
if phase_of(found) then
  if was_held then
    redis.call('DEL', readers)
  else
    local clock = redis.call('TIME')
    drop_ended(readers, clock[1] * 1000000 + clock[2])
    was_held = redis.call('ZREM', readers, id) == 1
  end
  if redis.call('EXISTS', readers) == 1 then
    set_end(lock, readers)
    if ARGV[2] ~= '' then
      wake_readers(queue, found)
    end
    return was_held and 1 or {0, found}
  end
elseif not was_held then
  return {0, found}
end

-- No lease holds the lock any more.
local waiter = redis.pcall('ZRANGE', queue, 0, 0)[1]
if waiter then
--@include living.lua
end
if not waiter then
  redis.call('DEL', lock)
  return was_held and 1 or {0, false}
end
local counter, own_counter, is_own = KEYS[4], KEYS[5], false
--@include native/offer.lua
return {was_held and 1 or 0, waiter}

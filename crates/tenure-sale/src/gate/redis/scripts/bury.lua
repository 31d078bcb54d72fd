#!lua flags=allow-oom
-- bury.lua: move an entry from the queue to the dead letters, in one atomic step.
--
-- KEYS  1 orders   2 dead
-- ARGV  1 its id   2 reason
-- Reply 1 if it was moved, 0 if it was not in the queue
--
-- Dead letters are in the order of their burial, so they have ids of their own; the entry's id is
-- in the first field.

local found = redis.call('XRANGE', KEYS[1], ARGV[1], ARGV[1])
if #found == 0 then
  return 0
end
local pending = redis.pcall('XPENDING', KEYS[1], 'ledger', ARGV[1], ARGV[1], 1)
local deliveries = not pending.err and pending[1] and pending[1][4] or 0
redis.call('XADD', KEYS[2], '*', '.id', ARGV[1], '.reason', ARGV[2], '.deliveries', deliveries,
  unpack(found[1][2]))
redis.call('XDEL', KEYS[1], ARGV[1])
redis.call('XACK', KEYS[1], 'ledger', ARGV[1])
return 1

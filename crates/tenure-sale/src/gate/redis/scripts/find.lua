#!lua flags=no-writes
-- find.lua: the entry of an order in the queue or among the dead letters.
--
-- KEYS  1 orders   2 dead
-- ARGV  1 its id
-- Reply {'queued', fields, deliveries}, {'dead', fields of the dead}, or nil

--@include dead_of.lua

local found = redis.call('XRANGE', KEYS[1], ARGV[1], ARGV[1])
if #found > 0 then
  local pending = redis.pcall('XPENDING', KEYS[1], 'ledger', ARGV[1], ARGV[1], 1)
  return {'queued', found[1][2], not pending.err and pending[1] and pending[1][4] or 0}
end
local dead = dead_of(KEYS[2], ARGV[1])
return dead and {'dead', dead[2]} or false

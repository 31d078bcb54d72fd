#!lua flags=allow-oom
-- claim_of.lua: deliver entries that one consumer has read, in one atomic step.
--
-- KEYS  1 orders
-- ARGV  1 consumer that gets them   2 minimum idle time in ms   3 consumer that has them   4 how many
-- Reply {'0-0'; {id, fields, deliveries}…; ids that are gone from the queue…}, as claim.lua

local pending = redis.call('XPENDING', KEYS[1], 'ledger', 'IDLE', ARGV[2], '-', '+', ARGV[4], ARGV[3])
local entries, gone = {}, {}
for _, held in ipairs(pending) do
  local id = held[1]
  local found = redis.call('XRANGE', KEYS[1], id, id)
  if #found == 0 then
    redis.call('XACK', KEYS[1], 'ledger', id)
    gone[#gone + 1] = id
  else
    redis.call('XCLAIM', KEYS[1], 'ledger', ARGV[1], 0, id, 'JUSTID', 'RETRYCOUNT', held[4] + 1)
    entries[#entries + 1] = {id, found[1][2], held[4] + 1}
  end
end
return {'0-0', entries, gone}

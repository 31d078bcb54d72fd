#!lua flags=allow-oom
-- claim.lua: deliver entries that another consumer has had for too long, in one atomic step.
--
-- KEYS  1 orders
-- ARGV  1 consumer   2 minimum idle time in ms   3 where to start   4 how many
-- Reply {where to continue, or '0-0'; {id, fields, deliveries}…; ids that are gone from the queue…}

local function claim()
  return redis.pcall('XAUTOCLAIM', KEYS[1], 'ledger', ARGV[1], ARGV[2], ARGV[3], 'COUNT', ARGV[4])
end

local claimed = claim()
if claimed.err and string.find(claimed.err, 'NOGROUP', 1, true) then
  if redis.call('EXISTS', KEYS[1]) == 0 then
    return {'0-0', {}, {}}
  end
  redis.call('XGROUP', 'CREATE', KEYS[1], 'ledger', '0')
  claimed = claim()
end
if claimed.err then
  return claimed
end
local entries = {}
for _, entry in ipairs(claimed[2]) do
  if entry then
    local pending = redis.call('XPENDING', KEYS[1], 'ledger', entry[1], entry[1], 1)
    entries[#entries + 1] = {entry[1], entry[2], pending[1] and pending[1][4] or 1}
  end
end
return {claimed[1], entries, claimed[3] or {}}

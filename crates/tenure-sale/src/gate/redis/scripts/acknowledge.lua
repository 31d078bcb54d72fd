#!lua flags=allow-oom
-- acknowledge.lua: remove entries from the queue for good, in one atomic step.
--
-- KEYS  1 orders
-- ARGV  their ids
-- Reply how many were there

-- In this order: if the server refuses one of them, what is left is still pending and is claimed again.
-- An entry that is neither pending nor deleted would be delivered to nobody.
local deleted = redis.call('XDEL', KEYS[1], unpack(ARGV))
redis.call('XACK', KEYS[1], 'ledger', unpack(ARGV))
return deleted

#!lua flags=allow-oom
-- acknowledge.lua: remove entries from the queue for good, in one atomic step.
--
-- KEYS  1 orders
-- ARGV  their ids
-- Reply how many were there

redis.call('XACK', KEYS[1], 'ledger', unpack(ARGV))
return redis.call('XDEL', KEYS[1], unpack(ARGV))

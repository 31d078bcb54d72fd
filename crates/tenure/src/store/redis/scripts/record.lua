#!lua flags=allow-oom
-- record.lua: write a client's record: host, pid, its leases, its waiters.
--
-- KEYS  1 record of the client
-- ARGV  1 ttl of the record in ms   2 'all' to replace the record, 'changes' to update it
--       3 number of fields that follow    4.. field, value, ... then the fields to remove
-- Reply 1   written
--       0   there is no record to update: write all of it

--@include whole.lua

local ttl, count = whole(ARGV[1]), whole(ARGV[3])
if not (ttl and count) or ttl < 1 or 3 + 2 * count > #ARGV then
  return redis.error_reply('ERR tenure: record: invalid number')
end
if ARGV[2] == 'changes' and redis.call('EXISTS', KEYS[1]) == 0 then
  return 0
end
if ARGV[2] == 'all' then
  redis.call('DEL', KEYS[1])
end
local removed = 4 + 2 * count
for i = 4, removed - 1, 2 do
  redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
end
for i = removed, #ARGV do
  redis.call('HDEL', KEYS[1], ARGV[i])
end
redis.call('PEXPIRE', KEYS[1], ttl)
return 1

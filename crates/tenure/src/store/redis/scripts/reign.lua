#!lua
-- reign.lua: since when this master has reigned, as all clients agree.
--
-- KEYS  1 reign
-- ARGV  1 which master this is and by which succession: its run id and its replication id
--       2 the server's time in us since when it has reigned for certain, or `` if nobody knows
-- Reply {since, now}   the server's time in us at which its reign counts as begun, and now
--
-- What is written down is that of another master, or nothing, after a failover or a restart. Then
-- whoever asks first begins a new reign, and all others find it.
--@include whole.lua

local certain = ARGV[2] ~= '' and whole(ARGV[2])
if ARGV[1] == '' or string.find(ARGV[1], ' ', 1, true) or certain == nil then
  return redis.error_reply('ERR tenure: reign got a master or a time that is none')
end
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local written = redis.call('GET', KEYS[1]) or ''
local master, since = string.match(written, '^(%S+) (%d+)$')
since = whole(since)
if master ~= ARGV[1] or not since then
  since = math.min(certain or now, now)
  redis.call('SET', KEYS[1], string.format('%s %.0f', ARGV[1], since))
end
redis.call('PEXPIRE', KEYS[1], 2592000000) -- thirty days without anybody who asks
return {string.format('%.0f', since), string.format('%.0f', now)}

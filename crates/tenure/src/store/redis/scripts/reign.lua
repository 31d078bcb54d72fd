#!lua
-- reign.lua: since when this server has been the primary, agreed on by all clients.
--
-- KEYS  1 reign
-- Reply {master, since, now}   its run id and replication id; the server time in us since when it
--                              counts as the primary; the server time now
--
-- The time starts when a client first asks under this run id and this replication id. A value
-- stored under other ids belongs to an earlier primary, whose data may be lost. Neither the age of
-- the process nor anything a client knew before can move the start to an earlier time.
--@include whole.lua
--@include master.lua

local id = master()
if id == '' then
  return redis.error_reply('ERR tenure: INFO has no run id or no replication id')
end
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local written = redis.call('GET', KEYS[1]) or ''
local of, since = string.match(written, '^(%S+) (%d+)$')
since = whole(since)
if of ~= id or not since or since > now then
  since = now
  redis.call('SET', KEYS[1], string.format('%s %.0f', id, since))
end
redis.call('PEXPIRE', KEYS[1], 2592000000) -- thirty days after the last request
return {id, string.format('%.0f', since), string.format('%.0f', now)}

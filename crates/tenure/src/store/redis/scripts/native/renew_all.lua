#!lua flags=allow-oom
-- renew_all.lua: extend several leases to a full ttl, each if it still exists. Never creates one.
--
-- KEYS  1..n locks
-- ARGV  1..n lease ids   n+1 ttl in ms   n+2 whether to read the keys again: 1 or 0
-- Reply {result, ...}   for each lock: 1 if it was renewed, 0 if nothing was changed: renew.lua tells
--                       why

--@include whole.lua

local count = #KEYS
local ttl = whole(ARGV[count + 1])
if not ttl or ttl < 1 then
  return redis.error_reply('ERR tenure: renew_all: invalid ttl')
end
local found, results = redis.call('MGET', unpack(KEYS)), {}
for i = 1, count do
  local is_held = found[i] == ARGV[i]
  if is_held then
    redis.call('PEXPIRE', KEYS[i], ttl)
  end
  results[i] = is_held and 1 or 0
end
if ARGV[count + 2] == '1' then
  -- PEXPIRE ended this connection's tracking of the keys: read them again.
  redis.call('MGET', unpack(KEYS))
end
return results

#!lua flags=allow-oom
-- longest_ttl.lua: record on one node that leases may have this ttl.
--
-- KEYS  1 longest ttl
-- ARGV  1 ttl in ms
-- Reply 1
--@include whole.lua
--@include redlock/keep_longest.lua

local ttl = whole(ARGV[1])
if not ttl or ttl < 1 then
  return redis.error_reply('ERR tenure: longest_ttl: invalid number')
end
keep_longest(KEYS[1], ttl)
return 1

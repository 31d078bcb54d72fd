#!lua flags=allow-oom
-- clients.lua: the index of client records: add a client, remove it, drop expired ones, list the rest.
--
-- KEYS  1 index
-- ARGV  1 client id, or '' to only list   2 ms until it counts as dead, or 0 to remove it
-- Reply the ids of the clients that are alive

--@include whole.lua

local ttl = whole(ARGV[2])
if not ttl then
  return redis.error_reply('ERR tenure: clients: invalid ttl')
end
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
if ARGV[1] ~= '' then
  if ttl > 0 then
    redis.call('ZADD', KEYS[1], now + ttl, ARGV[1])
    redis.call('PEXPIRE', KEYS[1], 86400000)
  else
    redis.call('ZREM', KEYS[1], ARGV[1])
  end
end
return redis.call('ZRANGE', KEYS[1], 0, -1)

#!lua
-- repair.lua: restore a lease on a node that has lost it, if no other lease holds the lock.
--
-- KEYS  1 lock   2 fence   [3 metadata]
-- ARGV  1 lease id   2 ttl in ms   3 latest server time in us at which this may be done
--       4 last fence of the lease's block   [5.. metadata of the lease: field, value, field, value ...]
-- Reply {1}                          the node has the lease, for ttl ms
--       {0, lease id}                another lease holds the lock; nil: a greater fence is stored
--       {'late', server time in us}  the latest time has passed, nothing was changed
--
-- Only sent when a majority has just extended the lease: then no other lease can have a majority.
--@include whole.lua
--@include redlock/stored_fence.lua
--@include LAYOUT/lock.lua

local ttl, latest, last = whole(ARGV[2]), whole(ARGV[3]), whole(ARGV[4])
if not (ttl and latest and last) or ttl < 1 then
  return redis.error_reply('ERR tenure: repair: invalid number')
end
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
if now > latest then
  return {'late', string.format('%.0f', now)}
end
local found, refusal = holder_at(KEYS[1])
if refusal then
  if refusal.err then
    return refusal
  end
  return {0, false}
end
if found and found ~= ARGV[1] then
  return {0, found}
end
local stored, trouble = stored_fence(KEYS[2])
if trouble then
  return trouble
end
if stored and stored > last then
  return {0, false}
end
put(KEYS[1], ARGV[1], ttl)
keep_fence(KEYS[2], last)
local meta = KEYS[3]
-- What the node knows of this lease may be newer.
if meta and ARGV[5] and redis.pcall('HGET', meta, 'lease') ~= ARGV[1] then
  redis.call('DEL', meta)
  redis.call('HSET', meta, 'lease', ARGV[1], unpack(ARGV, 5))
  redis.call('PEXPIRE', meta, ttl)
end
return {1}

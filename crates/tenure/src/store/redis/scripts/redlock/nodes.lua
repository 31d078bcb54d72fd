#!lua
-- nodes.lua: record on one node since when the processes of all nodes have been running.
--
-- KEYS  1 nodes
-- ARGV  1 run id   2 its uptime in ms   [3 run id   4 ...]
-- Reply 1
--
-- The first recorded start stays: later observations of the same process are less precise. A start
-- in the future was recorded before the clock was set back, and is replaced.
--@include whole.lua

if #ARGV < 2 or #ARGV % 2 ~= 0 then
  return redis.error_reply('ERR tenure: nodes: run ids and ages must be pairs')
end
for at = 2, #ARGV, 2 do
  if not whole(ARGV[at]) then
    return redis.error_reply('ERR tenure: nodes: invalid number')
  end
end
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local known = redis.call('HGETALL', KEYS[1])
local starts, count = {}, 0
for at = 1, #known, 2 do
  starts[known[at]] = whole(known[at + 1])
  count = count + 1
end

local current = {}
for at = 1, #ARGV, 2 do
  local run_id = ARGV[at]
  current[run_id] = true
  if not starts[run_id] or starts[run_id] > now then
    redis.call('HSET', KEYS[1], run_id, string.format('%.0f', math.max(0, now - ARGV[at + 1])))
  end
end
-- Processes that have ended are of no use: the caller sees their successors.
if count > 64 then
  for at = 1, #known, 2 do
    if not current[known[at]] then
      redis.call('HDEL', KEYS[1], known[at])
    end
  end
end
redis.call('PEXPIRE', KEYS[1], 2592000000) -- 30 days
return 1

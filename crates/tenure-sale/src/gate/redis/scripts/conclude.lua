#!lua flags=allow-oom
-- conclude.lua: delete the record of a move whose units have arrived, in one atomic step.
--
-- KEYS  1 gate
-- ARGV  1 epoch   2 number of the move
-- Reply 1 if it was recorded, 0 if it was already deleted

local gate = redis.call('HMGET', KEYS[1], 'epoch', 'out')
if gate[1] ~= ARGV[1] or not gate[2] or string.match(gate[2], '^%d+') ~= ARGV[2] then
  return 0
end
return redis.call('HDEL', KEYS[1], 'out')

#!lua flags=allow-oom
-- unbury.lua: remove a dead letter for good, in one atomic step.
--
-- KEYS  1 dead
-- ARGV  1 its id in the queue
-- Reply 1 if it was there, else 0

--@include dead_of.lua

local dead = dead_of(KEYS[1], ARGV[1])
if not dead then
  return 0
end
redis.call('XDEL', KEYS[1], dead[1])
if redis.call('XLEN', KEYS[1]) == 0 then
  redis.call('DEL', KEYS[1])
end
return 1

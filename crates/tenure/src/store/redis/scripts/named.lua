-- named.lua: set `waiter`, the first living one in `queue`, to the waiter `named` if that is in the queue
-- and living. Included by both release.lua, for a holder that chose its successor.
--
-- With pcall: a key of the wrong type must not block the release of the lock.
if type(redis.pcall('ZSCORE', queue, named)) == 'string' then
  local lives_until = redis.pcall('ZSCORE', alive, named)
  local clock = redis.call('TIME')
  if type(lives_until) ~= 'string'
    or tonumber(lives_until) >= clock[1] * 1000 + math.floor(clock[2] / 1000) then
    waiter = named
  end
end

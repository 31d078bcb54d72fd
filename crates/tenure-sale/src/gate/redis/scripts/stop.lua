#!lua flags=allow-oom
-- stop.lua: sell nothing more until an operator has the item loaded anew, in one atomic step.
--
-- KEYS  1 gate
-- Reply 1 if it is stopped, 0 if it is not on sale here
--
-- For a ledger that knows less than this gate. Everything here stays as it is: it may be all that is
-- left of some orders.

local state = redis.call('HGET', KEYS[1], 'state')
if not state then
  return 0
end
if state ~= 'loading' then
  redis.call('HSET', KEYS[1], 'state', 'loading', 'stopped', 1)
end
return redis.call('HEXISTS', KEYS[1], 'stopped')

-- living.lua: set `waiter`, the first in `queue`, to the first living waiter, or nil. Included by
-- release.lua and turn.lua, which set `waiter`, `queue` and `alive`.
--
-- A waiter counts as living until the server time stored with its id in `alive`; its process
-- extends that time with stay.lua. All waiters whose time has passed are removed from the queue at
-- once, so that a whole fleet that died costs only one release. A waiter without such a time
-- belongs to a client that does not report, and counts as living.
--
-- With pcall: a key of the wrong type must not block the release of the lock.
local lives_until = redis.pcall('ZSCORE', alive, waiter)
if type(lives_until) == 'string' then
  local clock = redis.call('TIME')
  local now_ms = clock[1] * 1000 + math.floor(clock[2] / 1000)
  if tonumber(lives_until) < now_ms then
    local dead, gone
    repeat
      -- In batches: Lua can pass only a few thousand arguments.
      dead = redis.pcall('ZRANGEBYSCORE', alive, '-inf', '(' .. now_ms, 'LIMIT', 0, 1000)
      gone = 0
      if #dead > 0 then
        redis.pcall('ZREM', queue, unpack(dead))
        gone = redis.pcall('ZREM', alive, unpack(dead))
      end
    until #dead < 1000 or gone ~= #dead
    waiter = redis.pcall('ZRANGE', queue, 0, 0)[1]
  end
end

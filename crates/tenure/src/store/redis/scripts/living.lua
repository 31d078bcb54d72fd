-- living.lua: make `waiter`, the first in `queue`, the first one that lives, or nil. Included by
-- release.lua and turn.lua, which set `waiter`, `queue` and `alive`.
--
-- A waiter counts as living until the server time that stands beside its id in `alive`; its process
-- moves that forward by stay.lua. All whose time has passed are taken out of the queue at once, so that
-- a fleet that died costs one release. A waiter that has no such time is of a client that does not tell,
-- and counts as living.
--
-- By pcall: a key that is not what it should be must not keep the lock from being released.
local lives_until = redis.pcall('ZSCORE', alive, waiter)
if type(lives_until) == 'string' then
  local clock = redis.call('TIME')
  local now_ms = clock[1] * 1000 + math.floor(clock[2] / 1000)
  if tonumber(lives_until) < now_ms then
    local dead, gone
    repeat
      -- In pieces: Lua passes on a few thousand arguments at most.
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

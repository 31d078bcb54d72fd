-- heard.lua: whether the lock is to be kept for the next waiter for a moment only. Included by
-- release.lua and turn.lua. They set `heard`, how many heard on the wake channel whose turn it is, while
-- that one still stands in `queue`; this sets `brief`.
--
-- Everybody in the queue listens to that channel. If fewer heard it than wait, some have just died or
-- are without a connection, perhaps the one whose turn it is. Then it has half a second, and the others
-- are told to look after that.
local waiting = redis.pcall('ZCARD', queue)
brief = type(heard) == 'number' and type(waiting) == 'number' and heard < waiting

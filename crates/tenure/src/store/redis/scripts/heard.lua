-- heard.lua: decide whether to hold the lock for the next waiter only briefly. Included by
-- release.lua and turn.lua. They set `heard`, the number of subscribers that received the message
-- with the next waiter on the wake channel, while that waiter is still in `queue`. This sets
-- `brief`.
--
-- Every waiter in the queue subscribes to that channel. If fewer received the message than wait,
-- some have just died or lost their connection, possibly the next waiter itself. It then gets half
-- a second, and the others check after that.
local waiting = redis.pcall('ZCARD', queue)
brief = type(heard) == 'number' and type(waiting) == 'number' and heard < waiting

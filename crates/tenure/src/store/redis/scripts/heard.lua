-- heard.lua: decide whether to hold the lock for the next waiter only briefly. Included by
-- release.lua and turn.lua. They set `heard`, the number of subscribers that received the message
-- with the next waiter on the wake channel, while that waiter is still in `queue`. This sets
-- `brief`.
--
-- The client of every waiter in the queue subscribes to that channel. If fewer received the message
-- than wait, some have just died or lost their connection, possibly the next waiter itself. It then
-- gets half a second, and the others check after that.
local waiting = redis.pcall('ZCARD', queue)
brief = type(heard) == 'number' and type(waiting) == 'number' and heard < waiting
if brief then
  -- Callers of one client that each have a place of their own subscribe once.
  local first, clients, known = redis.pcall('ZRANGE', queue, 0, 99), 0, {}
  for _, id in ipairs(first) do
    local client = string.match(id, '^tenure:%x+:') or id
    clients = clients + (known[client] and 0 or 1)
    known[client] = true
  end
  brief = clients == #first or heard < clients
end

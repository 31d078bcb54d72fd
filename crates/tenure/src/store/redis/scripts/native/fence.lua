-- fence.lua: mint a fence and reserve `fences` of them; the first is `fence`. Included by acquire.lua,
-- turn.lua and offer.lua, which set the server's `clock`, the same as `now` in us, and whether the
-- lock `was_free`.
--
-- A counter is a stream that keeps no entries. XADD assigns an id from the server's clock in ms and a
-- sequence number, always greater than the last id; a new counter starts with the clock in us. So a
-- fence is the clock, or the last fence plus one if the clock is not ahead of that. Fences increase
-- even if the counter was lost or restored from an older copy, as long as the clock is not set back;
-- and even if the clock is set back, as long as the counter is kept. They stay below 2^53, where
-- Lua's numbers are exact.
--
-- KEYS[2] is shared by all locks of a database, unless their keys must be in the slot of the lock.
-- KEYS[3] is the lock's own counter. If the other one is shared, it exists only while fences are
-- reserved that may be used later, after a lease that reserved some was lost, or because a client
-- acquired the lock that knows no other counter.

-- The number of an id, and the id of a number. A sequence stays below 1000.
local function to_fence(id)
  local dash = string.find(id, '-', 1, true)
  return string.sub(id, 1, dash - 1) * 1000 + string.sub(id, dash + 1)
end
local function to_id(fence)
  return string.format('%.0f-%.0f', math.floor(fence / 1000), fence % 1000)
end
-- Keeps a counter for a day after the clock has passed its last fence: from then on the clock alone
-- is enough.
local function keep(counter, last)
  local kept
  if last > now + 1000000 then
    kept = redis.pcall('PEXPIREAT', counter, string.format('%.0f', math.floor(last / 1000) + 86400000))
  else
    kept = redis.pcall('PEXPIRE', counter, '86401000')
  end
  return type(kept) == 'table' and kept.err
end

local is_shared, own_last, fence, minted, trouble = KEYS[2] ~= KEYS[3], nil, 0, 0, nil
local blamed = KEYS[2]
local id = redis.pcall('XADD', KEYS[2], 'NOMKSTREAM', 'MAXLEN', '0', '*', 'f', '')
if not id then
  local us = clock[2] + 0
  local by_clock = string.format('%s%03d-%d', clock[1], math.floor(us / 1000), us % 1000)
  id = redis.pcall('XADD', KEYS[2], 'MAXLEN', '0', by_clock, 'f', '')
end
if type(id) == 'table' then
  trouble = id.err
else
  minted = to_fence(id)
  fence = minted
end
if not trouble and is_shared and redis.pcall('EXISTS', KEYS[3]) ~= 0 then
  local own = redis.pcall('XINFO', 'STREAM', KEYS[3])
  if own.err then
    trouble, blamed = own.err, KEYS[3]
  end
  for i = 1, #own - 1, 2 do
    if own[i] == 'last-generated-id' then
      own_last = to_fence(own[i + 1])
      fence = math.max(fence, own_last + 1)
    end
  end
end
local last = fence + fences - 1
if not trouble and last > 9007199254740990 then
  trouble = 'exhausted'
end
if not trouble and is_shared then
  if fences > 1 or own_last and own_last > now then
    -- XADD creates it; if it exists, it is below `last`.
    local set = redis.pcall('XADD', KEYS[3], 'MAXLEN', '0', to_id(last), 'f', '')
    trouble = type(set) == 'table' and set.err or keep(KEYS[3], last)
    blamed = trouble and KEYS[3] or blamed
  elseif own_last then
    -- The clock has passed it: the shared counter is enough from now on.
    minted = fence
    redis.call('DEL', KEYS[3])
  end
end
if not trouble then
  if not is_shared then
    minted = last
  end
  if to_id(minted) ~= id then
    redis.call('XSETID', KEYS[2], to_id(minted))
  end
  trouble = keep(KEYS[2], minted)
end
if trouble then
  if was_free then
    redis.call('DEL', KEYS[1])
  end
  if string.sub(trouble, 1, 9) == 'WRONGTYPE' then
    trouble = 'ERR tenure: the fence counter `' .. blamed .. '` is not a stream'
  elseif string.find(trouble, 'exhausted', 1, true) then
    trouble = 'ERR tenure: the fence counter `' .. blamed .. '` is exhausted'
  end
  return redis.error_reply(trouble)
end

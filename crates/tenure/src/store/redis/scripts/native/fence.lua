-- fence.lua: reserve `fences` fences in KEYS[2]; the first of them is `fence`. Included by
-- acquire.lua and turn.lua, which set the server's `clock`, the same as `now` in us, and whether
-- the lock `was_free`.
--
-- The counter is a stream that keeps no entries. XADD assigns an id from the server's clock in ms
-- and a sequence number, always greater than the last id; a new counter starts with the clock in
-- us. So a fence is the clock, or the last fence plus one if the clock is not ahead of that. Fences
-- increase even if the counter was lost or restored from an older copy, as long as the clock is not
-- set back; and even if the clock is set back, as long as the counter is kept. They stay below
-- 2^53, where Lua's numbers are exact.
local id = redis.pcall('XADD', KEYS[2], 'NOMKSTREAM', 'MAXLEN', '0', '*', 'f', '')
if not id then
  local us = clock[2] + 0
  local by_clock = string.format('%s%03d-%d', clock[1], math.floor(us / 1000), us % 1000)
  id = redis.pcall('XADD', KEYS[2], 'MAXLEN', '0', by_clock, 'f', '')
end
local trouble, fence, last = type(id) == 'table' and id.err, 0, 0
if not trouble then
  local dash = string.find(id, '-', 1, true)
  local ms, sequence = string.sub(id, 1, dash - 1) + 0, string.sub(id, dash + 1) + 0
  fence = ms * 1000 + sequence
  last = fence + fences - 1
  if last > 9007199254740990 then
    trouble = 'exhausted'
  elseif fences > 1 or sequence > 999 then
    -- The sequence must stay below 1000: carry over.
    redis.call('XSETID', KEYS[2], string.format('%.0f-%.0f', math.floor(last / 1000), last % 1000))
  end
end
if not trouble then
  -- Kept for a day after the clock has passed the fence: from then on the clock alone is enough.
  local kept
  if last > now + 1000000 then
    kept = redis.pcall('PEXPIREAT', KEYS[2], string.format('%.0f', math.floor(last / 1000) + 86400000))
  else
    kept = redis.pcall('PEXPIRE', KEYS[2], '86401000')
  end
  trouble = type(kept) == 'table' and kept.err
end
if trouble then
  if was_free then
    redis.call('DEL', KEYS[1])
  end
  if string.sub(trouble, 1, 9) == 'WRONGTYPE' then
    trouble = 'ERR tenure: the fence counter `' .. KEYS[2] .. '` is not a stream'
  elseif string.find(trouble, 'exhausted', 1, true) then
    trouble = 'ERR tenure: the fence counter `' .. KEYS[2] .. '` is exhausted'
  end
  return redis.error_reply(trouble)
end

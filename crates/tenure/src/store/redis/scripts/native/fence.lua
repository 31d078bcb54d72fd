-- fence.lua: reserve `fences` fences in KEYS[2]; the first of them is `fence`. Included by acquire.lua and
-- turn.lua, which know the server's `clock`, the same as `now` in us, and whether the lock `was_free`.
--
-- The counter is a stream that keeps no entries. XADD gives it an id of the server's clock in ms and a
-- sequence number, always greater than the last id; a counter that is new begins with the clock to the
-- us. So a fence is the clock, or one more than the last fence if the clock is not ahead of that. Fences
-- grow although the counter was lost or came back from an older copy, while the clock is not set back;
-- and although the clock is set back, while the counter is kept. They stay below 2^53, where Lua's
-- numbers are exact.
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
    -- The second half of an id is less than 1000: carry over.
    redis.call('XSETID', KEYS[2], string.format('%.0f-%.0f', math.floor(last / 1000), last % 1000))
  end
end
if not trouble then
  -- Kept for a day after the clock has passed the fence: by then the clock stands in for it.
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
    trouble = 'ERR tenure: the fence counter `' .. KEYS[2] .. '` is used up'
  end
  return redis.error_reply(trouble)
end

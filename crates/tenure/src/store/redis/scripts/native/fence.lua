-- fence.lua: reserve `fences` fences in KEYS[2]; the first of them is `fence`. Included by acquire.lua and
-- turn.lua, which know the server's `clock`, and whether the lock `was_free` before.
--
-- The counter is a stream that keeps no entries. XADD takes the clock as an id, ms and us, if that is
-- greater than the last id; otherwise it makes an id itself, one more than the last. So a fence is the
-- clock, or one more than the last fence if the clock is not ahead of that. Fences grow although the
-- counter was lost or came back from an older copy, while the clock is not set back; and although the
-- clock is set back, while the counter is kept. They stay below 2^53, where Lua's numbers are exact.
local function no_fence(trouble)
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
local us = clock[2] + 0
local by_clock = string.format('%s%03d-%d', clock[1], math.floor(us / 1000), us % 1000)
local id = redis.pcall('XADD', KEYS[2], 'MAXLEN', '0', by_clock, 'f', '')
if type(id) == 'table' then
  id = redis.pcall('XADD', KEYS[2], 'MAXLEN', '0', '*', 'f', '')
end
if type(id) == 'table' then
  return no_fence(id.err)
end
local dash = string.find(id, '-', 1, true)
local ms, sequence = string.sub(id, 1, dash - 1) + 0, string.sub(id, dash + 1) + 0
local fence = ms * 1000 + sequence
if fence + fences > 9007199254740991 then
  return no_fence('exhausted')
end
sequence = sequence + fences - 1
if fences > 1 or sequence > 999 then
  -- The second half of an id is less than 1000: carry over.
  ms = ms + math.floor(sequence / 1000)
  redis.call('XSETID', KEYS[2], string.format('%.0f-%.0f', ms, sequence % 1000))
end
-- A day after the clock has passed the fence: by then the clock stands in for the counter.
local kept = redis.pcall('PEXPIREAT', KEYS[2], string.format('%.0f', ms + 86400000))
if type(kept) == 'table' then
  return no_fence(kept.err)
end

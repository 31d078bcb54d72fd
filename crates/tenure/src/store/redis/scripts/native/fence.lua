-- fence.lua: reserve `fences` fences in KEYS[2]; the first of them is `fence`. Included by acquire.lua
-- and turn.lua, which know `connected` and `now`, and whether the lock `was_free` before.
--
-- A fence is one more than the last. A counter below `connected` is new, or came back from an older
-- copy of the data: then the clock itself is the fence. So fences grow
-- although the counter was lost, and stay below 2^53, where Lua's numbers are exact.
local last = redis.pcall('INCRBY', KEYS[2], fences)
if type(last) == 'table' or last > 9007199254740990 then
  local trouble = type(last) == 'table' and last.err or ''
  if trouble == '' then
    redis.call('DECRBY', KEYS[2], fences)
  end
  if was_free then
    redis.call('DEL', KEYS[1])
  end
  if string.sub(trouble, 1, 9) == 'WRONGTYPE' then
    return redis.error_reply('ERR tenure: the fence counter `' .. KEYS[2] .. '` is not a string')
  end
  if trouble == '' or trouble:find('integer') or trouble:find('overflow') then
    return redis.error_reply('ERR tenure: the fence counter `' .. KEYS[2] .. '` is used up')
  end
  return last
end
if last - fences < connected then
  last = math.max(now, connected) + fences - 1
  redis.call('SET', KEYS[2], string.format('%.0f', last), 'PX', 604800000)
end
local fence = last - fences + 1

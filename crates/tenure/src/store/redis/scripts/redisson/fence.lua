-- fence.lua: reserve `fences` fences in `counter`; the first of them is `fence`, or nil with the
-- `trouble` to return. Included by acquire.lua and turn.lua, which set `now`.
--
-- A fence is the last fence plus one, even if Redisson minted that, and never below the server's
-- clock. So fences increase even if the counter was lost or restored from an older copy, and stay
-- below 2^53, where Lua's numbers are exact. They are reserved, because Redisson increments the
-- counter without checking the clock. No ttl: Redisson would start again at 1.
local stored, trouble = redis.pcall('GET', counter), nil
local fence = nil
if type(stored) == 'table' then
  trouble = stored
  if string.sub(stored.err, 1, 9) == 'WRONGTYPE' then
    trouble = redis.error_reply('ERR tenure: the fence counter `' .. counter .. '` is not a string')
  end
else
  fence = math.max((tonumber(stored or '0') or 9007199254740991) + 1, now)
  if fence % 1 ~= 0 or fence + fences - 1 > 9007199254740990 then
    fence = nil
    trouble = redis.error_reply('ERR tenure: the fence counter `' .. counter .. '` is exhausted')
  else
    local kept = redis.pcall('SET', counter, string.format('%.0f', fence + fences - 1))
    if type(kept) == 'table' and kept.err then
      fence, trouble = nil, kept
    end
  end
end

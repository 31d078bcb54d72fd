-- mint.lua: the next fence of a lock. Included by acquire.lua and release.lua.
--
-- A fence is one more than the last, or the server's clock in microseconds if that is greater:
-- so it grows even when the counter was lost. Kept below 2^53, where Lua's numbers are exact.

-- The last fence in `key` (0 if there is none), or nil and the error that says why not.
local function last_fence(key)
  local last = redis.pcall('GET', key)
  if type(last) == 'table' then
    if string.sub(last.err, 1, 9) ~= 'WRONGTYPE' then
      return nil, last.err
    end
    return nil, 'ERR tenure: the fence counter `' .. key .. '` is not a string'
  end
  last = last and tonumber(last) or 0
  if not (last < 9007199254740990) then -- so that `nan` is refused too
    return nil, 'ERR tenure: the fence counter `' .. key .. '` is used up'
  end
  return last
end

local function next_fence(last, clock)
  return string.format('%.0f', math.max(last + 1, clock[1] * 1000000 + clock[2]))
end

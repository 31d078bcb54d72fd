-- handed_on.lua: return reserved fences that were not used. Included by release.lua and turn.lua,
-- which know that the lease holds the lock. So no other lease was granted since, and fences minted
-- by attempts on the busy lock were not used.

local function handed_on(counter, fence)
  local used = fence and whole(fence)
  if used then
    redis.pcall('XSETID', counter, string.format('%.0f-%.0f', math.floor(used / 1000), used % 1000))
  end
end

-- handed_on.lua: give back fences that were reserved and not used. Included by release.lua and turn.lua,
-- which know that the lease holds the lock: so nobody else was granted one since, and those that
-- attempts on a busy lock have minted are nobody's.

local function handed_on(counter, fence)
  local used = fence and whole(fence)
  if used then
    redis.pcall('XSETID', counter, string.format('%.0f-%.0f', math.floor(used / 1000), used % 1000))
  end
end

-- handed_on.lua: return reserved fences that were not used. Included by release.lua and turn.lua,
-- which know that the lease holds the lock, so no other client has taken one since.

local function handed_on(counter, fence)
  if fence and fence ~= '' then
    redis.pcall('SET', counter, fence)
  end
end

-- handed_on.lua: give back fences that were reserved and not used. Included by release.lua and turn.lua,
-- which know that the lease holds the lock: so nobody else has taken one since.

local function handed_on(counter, fence)
  if fence and fence ~= '' then
    redis.pcall('SET', counter, fence)
  end
end

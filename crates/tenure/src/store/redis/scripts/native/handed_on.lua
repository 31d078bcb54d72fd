-- handed_on.lua: let the counter know of fences that were handed on. Included by release.lua and
-- turn.lua, which know that the lease holds the lock.

-- While a lease lasts, its process mints fences for those to whom it hands the lock on: never above
-- the server's clock, so nobody else can get one of them. When the lease ends, the counter learns of
-- the last one, in case the clock is set back. XADD refuses an id that is not above its last one.
local function handed_on(counter, fence)
  local number = fence and whole(fence)
  if number and number > 0 then
    local id = string.format('%.0f-%.0f', math.floor(number / 1000), number % 1000)
    redis.pcall('XADD', counter, 'NOMKSTREAM', 'MAXLEN', '0', id, 'f', '')
  end
end

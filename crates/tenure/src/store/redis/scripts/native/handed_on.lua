-- handed_on.lua: return reserved fences that were not used. Included by release.lua and turn.lua,
-- which know that the lease holds the lock. So no other lease was granted since, and fences minted
-- by attempts on the busy lock were not used.

-- Whether the server's clock has passed a fence.
local function is_past(fence)
  local clock = redis.call('TIME')
  return fence <= clock[1] * 1000000 + clock[2]
end

-- `fence` is the last that was used. If the lease `ends` and the counter is shared, the lock needs
-- no counter of its own any more: the shared one is above what was used. But that one is never set
-- ahead of the clock.
local function handed_on(counter, own, fence, ends)
  local used = fence and whole(fence)
  if not used then
    return
  end
  local id = string.format('%.0f-%.0f', math.floor(used / 1000), used % 1000)
  if ends and counter ~= own and redis.pcall('EXISTS', counter) == 1 and is_past(used) then
    -- Refused if the counter is above it already.
    redis.pcall('XADD', counter, 'MAXLEN', '0', id, 'f', '')
    redis.pcall('DEL', own)
  else
    redis.pcall('XSETID', own, id)
  end
end

-- in_time.lua: refuse a request that reached another primary than the one it is for, or that runs
-- later than it may. Included by every script that grants, after it has set `primary` ('' for any)
-- and `latest`, the latest moment in microseconds. Sets `now`, the server's clock.

if primary ~= '' then
--@include master.lua
  local found = master()
  if found ~= primary then
    return {'master', found}
  end
end
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
if now > latest then
  return {'late', string.format('%.0f', now)}
end

-- master.lua: identify the primary that runs this script. Included by in_time.lua and reign.lua.

-- The run id, which changes with every restart, and the replication id, which changes with every
-- promotion, even if the same process is demoted and promoted again. Found by plain search, because
-- a pattern match would take longer than the rest of the script.
local function master()
  local info = redis.call('INFO', 'server', 'replication')
  local _, run = string.find(info, 'run_id:', 1, true)
  local _, replication = string.find(info, 'master_replid:', run or 1, true)
  if not (run and replication) then
    return ''
  end
  return string.sub(info, run + 1, run + 40) .. ':' .. string.sub(info, replication + 1, replication + 40)
end

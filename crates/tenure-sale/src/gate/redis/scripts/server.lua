-- The identity of this server: it changes with every restart and every promotion, even if a process
-- is demoted and promoted again. Data stored under another identity may have been lost meanwhile.
-- Found by plain search: a pattern takes longer than the rest of the script.
local function server()
  local info = redis.call('INFO', 'server', 'replication')
  local _, run = string.find(info, 'run_id:', 1, true)
  local _, reign = string.find(info, 'master_replid:', run, true)
  return string.sub(info, run + 1, run + 40) .. ':' .. string.sub(info, reign + 1, reign + 40)
end

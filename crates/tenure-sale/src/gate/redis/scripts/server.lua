-- Who answers here: another one after every restart and every promotion, also if a process is
-- deposed and promoted again. What is known under another name may have been lost meanwhile.
local function server()
  local info = redis.call('INFO', 'server', 'replication')
  local run, reign = string.match(info, 'run_id:(%x+)'), string.match(info, 'master_replid:(%x+)')
  return (run or '') .. ':' .. (reign or '')
end

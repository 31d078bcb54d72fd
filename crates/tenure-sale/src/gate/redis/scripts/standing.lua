#!lua flags=no-writes
-- standing.lua: the state of an item at the gate; for a spread item, of one shelf.
--
-- KEYS  1 gate   2 orders   3 dead
-- Reply nil if the gate does not know the item, otherwise
--       {1 if the server is the one that was loaded, else 0; state; epoch; units left or '';
--        number of the last change or ''; entries queued; entries pending; entries dead;
--        number of shelves; units that arrived or ''; units that left or '';
--        the move in progress as number:to:units or ''}

--@include server.lua

local gate = redis.call('HMGET', KEYS[1], 'state', 'epoch', 'left', 'change', 'run', 'spread', 'came',
  'gone', 'out')
if not gate[2] then
  return false
end
local pending = redis.pcall('XPENDING', KEYS[2], 'ledger')
return {
  gate[5] == server() and 1 or 0, gate[1], gate[2], gate[3] or '', gate[4] or '',
  redis.call('XLEN', KEYS[2]), pending.err and 0 or pending[1], redis.call('XLEN', KEYS[3]),
  gate[6] or '1', gate[7] or '', gate[8] or '', gate[9] or '',
}

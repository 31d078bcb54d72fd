-- The keys of an item that hold something else than what the gate writes there: their indexes, and
-- whether each is one of them.
local function foreign_keys()
  local foreign, is_foreign = {}, {}
  for n, kind in ipairs({'hash', 'hash', 'hash', 'stream', 'stream'}) do
    local found = redis.call('TYPE', KEYS[n]).ok
    if found ~= 'none' and found ~= kind then
      foreign[#foreign + 1] = n
      is_foreign[n] = true
    end
  end
  return foreign, is_foreign
end

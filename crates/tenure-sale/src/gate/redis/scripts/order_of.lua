-- The order of an entry of a shelf: its number in the queue, times the shelves, plus the shelf's index.
local function order_of(entry, spread, shelf)
  if spread == 1 then
    return entry
  end
  local epoch, number = string.match(entry, '^(%d+)%-(%d+)$')
  return epoch .. '-' .. plain(number * spread + shelf)
end

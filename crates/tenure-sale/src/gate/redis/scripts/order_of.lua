-- The order that an entry of a shelf is: its number in the queue, times the shelves, plus the shelf's.
local function order_of(entry, spread, shelf)
  if spread == 1 then
    return entry
  end
  local epoch, number = string.match(entry, '^(%d+)%-(%d+)$')
  return epoch .. '-' .. plain(number * spread + shelf)
end

-- Buyers and answers have a mark, the epoch, in a field that is no name: without it one of them was
-- deleted, and the gate no longer knows what it promised. After a sale they expire, and older
-- versions loaded items without marks.
local mark = '\n'

local function has_mark(marked, found, epoch, state, forgets)
  if marked ~= '1' or found == epoch then
    return true
  end
  return state == 'closed' and clock() >= (whole(forgets) or 0)
end

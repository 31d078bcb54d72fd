-- whole.lua: numbers that Redis takes as a time. Included by every script that gets some.
--
-- Redis refuses others only when the command runs, and then what came before it stays done.

-- The whole number that `text` holds, zero or more, or nil.
local function whole(text)
  local number = tonumber(text)
  if number and number % 1 == 0 and number >= 0 and number < 9007199254740992 then
    return number
  end
end

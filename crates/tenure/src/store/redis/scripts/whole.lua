-- whole.lua: check numbers that Redis takes as a time. Included by every script with such
-- arguments.
--
-- Redis would refuse an invalid number only when the command runs, and earlier writes of the script
-- would stay.

-- `text` as a non-negative integer, or nil.
local function whole(text)
  local number = tonumber(text)
  if number and number % 1 == 0 and number >= 0 and number < 9007199254740992 then
    return number
  end
end

-- A whole number in our notation, or nil: no sign, no exponent, and exact in Lua.
local function whole(text)
  local number = text and string.match(text, '^%d+$') and tonumber(text)
  return number and number <= 9007199254740991 and number or nil -- 2^53 - 1
end

local function plain(number)
  return string.format('%.0f', number)
end

-- last_fence.lua: the last fence that was minted. Included by look.lua.

-- The last fence of the counter as text, or the one stored by a Redlock; false if there is none.
local function last_fence(key, stored)
  local counter = redis.pcall('XINFO', 'STREAM', key)
  for i = 1, #counter - 1, 2 do
    if counter[i] == 'last-generated-id' then
      local ms, sequence = string.match(counter[i + 1], '^(%d+)-(%d+)$')
      return ms and string.format('%.0f', ms * 1000 + sequence)
    end
  end
  local fence = redis.pcall('GET', stored)
  return type(fence) == 'string' and fence or false
end

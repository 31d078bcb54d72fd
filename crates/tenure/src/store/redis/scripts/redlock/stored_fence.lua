-- stored_fence.lua: read the fence that a node has stored. Included by the scripts in redlock.

-- The fence at `key`, nil if there is none. Second, an error to return.
local function stored_fence(key)
  local stored = redis.pcall('GET', key)
  if not stored then
    return nil
  end
  if type(stored) == 'table' then
    if string.sub(stored.err, 1, 9) ~= 'WRONGTYPE' then
      return nil, stored
    end
    return nil, redis.error_reply('ERR tenure: the fence counter `' .. key .. '` is not a string')
  end
  local fence = whole(stored)
  if not fence then
    return nil, redis.error_reply('ERR tenure: the fence counter `' .. key .. '` is exhausted')
  end
  return fence
end

#!lua
-- latch.lua: a party arrives at a latch, or a look at one.
--
-- KEYS  1 latch   2 parties that have arrived
-- ARGV  1 how many parties must arrive   2 for how many ms to remember the latch after this
--       3 the party that arrives, or `` for a look
-- Reply {'closed', number}    so many parties have arrived
--       {'open', number}      as many as needed have arrived
--       {'need', number}      the latch waits for another number of parties, nothing was changed
--       {'lock', lease id}    the key is a lock or a semaphore, nothing was changed
--       {'type', type}        a key is of another type, nothing was changed
--
-- Parties are counted, not arrivals: a repeated one changes nothing. The key changes once, when the latch
-- opens, and clients that track it learn of that.
--@include whole.lua

local need, remember, party = whole(ARGV[1]), whole(ARGV[2]), ARGV[3]
if not (need and remember) or need < 1 or remember < 1 then
  return redis.error_reply('ERR tenure: latch: invalid number')
end
local found = redis.pcall('GET', KEYS[1])
if type(found) == 'table' then
  if string.sub(found.err, 1, 9) ~= 'WRONGTYPE' then
    return found
  end
  return {'type', redis.call('TYPE', KEYS[1]).ok}
end
if found then
  local known, open = string.match(found, '^tenure:latch:(%d+)(.*)$')
  if not known then
    return {'lock', found}
  elseif tonumber(known) ~= need then
    return {'need', tonumber(known)}
  elseif open == ':open' then
    return {'open', need}
  end
end
local kind = redis.call('TYPE', KEYS[2]).ok
if kind ~= 'set' and kind ~= 'none' then
  return {'type', kind}
end
if party == '' then
  return {'closed', redis.call('SCARD', KEYS[2])}
end

redis.call('SADD', KEYS[2], party)
local arrived = redis.call('SCARD', KEYS[2])
local latch = 'tenure:latch:' .. string.format('%d', need)
if arrived < need then
  redis.call('SET', KEYS[1], latch, 'PX', remember)
  redis.call('PEXPIRE', KEYS[2], remember)
  return {'closed', arrived}
end
redis.call('SET', KEYS[1], latch .. ':open', 'PX', remember)
redis.call('DEL', KEYS[2])
return {'open', need}

-- vote_for_one.lua: checks the arguments of a vote for one lease, and casts it. Included by vote.lua and
-- wait.lua.

-- The reply to the vote. The metadata, if there is any, is at the key with the number `meta_at`, and its
-- fields begin with the argument `fields_at`.
local function vote_for_one(meta_at, fields_at)
  local ttl, latest, first = whole(ARGV[2]), whole(ARGV[3]), whole(ARGV[4])
  local fences, below, above = whole(ARGV[5]), whole(ARGV[6]), whole(ARGV[7])
  if not (ttl and latest and first and fences and below and above) or ttl < 1 or fences < 1
    or fences > 1000000 or not whole(first + fences) then
    return redis.error_reply('ERR tenure: vote: invalid number')
  end
  if (#ARGV - fields_at) % 2 ~= 1 then
    return redis.error_reply('ERR tenure: vote: metadata must be field-value pairs')
  end
  local long, meta = ttl > 30000, KEYS[meta_at]
  if long and #KEYS < meta_at then
    return redis.error_reply('ERR tenure: vote: a long ttl needs a key to store it')
  end
  if long and #KEYS == meta_at then
    meta = nil
  end
  local clock = redis.call('TIME')
  local now = clock[1] * 1000000 + clock[2]
  if now > latest then
    return {'late', string.format('%.0f', now)}
  end
  local stored, trouble = stored_fence(KEYS[2])
  if trouble then
    return trouble
  end
  if long then
    keep_longest(KEYS[#KEYS], ttl)
  end
  local reply = cast_vote(KEYS[1], KEYS[2], ARGV[1], ttl, first, first + fences - 1, stored, now,
    below, above, ARGV[8] == 'always')
  if reply == 1 and meta then
    local meta_lease, meta_ttl, term = ARGV[1], ttl, first
--@include term.lua
  end
  return reply
end

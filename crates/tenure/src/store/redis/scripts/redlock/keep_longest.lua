-- keep_longest.lua: store the longest ttl that any lease may have. Included by the scripts in redlock.

-- Stores this ttl in ms at `key`, unless a longer one is stored, for 30 days from now.
local function keep_longest(key, ttl)
  local known = whole(redis.call('GET', key) or 0) or 0
  redis.call('SET', key, string.format('%.0f', math.max(known, ttl)), 'PX', 2592000000)
end

-- known_term.lua: set `known_term` if the lease in ARGV[1], which holds the lock, has a term in the
-- metadata at KEYS[6]. Included by both acquire.lua.
--
-- A repeated attempt keeps the term that it was granted with: an observer may have seen it, and a late
-- attempt must not undo what the leader has proclaimed since.
local known_term
if ARGV[7] == 'tenure:since' and redis.pcall('HGET', KEYS[6], 'lease') == ARGV[1] then
  known_term = tonumber(redis.call('HGET', KEYS[6], 'tenure:term'))
end

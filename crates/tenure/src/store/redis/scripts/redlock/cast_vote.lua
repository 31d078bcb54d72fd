-- cast_vote.lua: how a node votes for a lease with a block of fences. Included by vote.lua and
-- vote_all.lua.
--
-- Any two majorities share a node, and that node has accepted both blocks, the later one above the
-- earlier. So the fences of a majority are unique and increase, whatever clocks and messages do, as
-- long as no node loses its fence. A node that may lose it always goes by its clock instead: it
-- grants nothing far above its clock and nothing far below it, and is not asked for a while after a
-- restart. By then the clock has passed everything it can have granted.

-- The reply to a vote for the lease `id` and the block from `first` to `last`. `stored` is the fence
-- at the key `fence`, `now` this node's clock.
local function cast_vote(lock, fence, id, ttl, first, last, stored, now, below, above, always)
  local floor = stored or 0
  if not stored or always then
    floor = math.max(floor, now - below)
  end
  local far = last > now + above
  -- Most votes find the lock free and propose a high enough block: for those every command counts.
  if first > floor and not far and take(lock, id, ttl) then
    keep_fence(fence, last)
    return 1
  end
  local found, refusal = holder_at(lock)
  if refusal then
    return refusal
  end
  if found and found ~= id then
    return {'busy', found, redis.call('PTTL', lock), string.format('%.0f', floor)}
  end
  if not (found and stored == last) then -- otherwise this is the same vote repeated
    if first <= floor then
      return {'stale', string.format('%.0f', floor)}
    end
    if far then
      return {'far', string.format('%.0f', now)}
    end
  end
  put(lock, id, ttl)
  keep_fence(fence, last)
  return 1
end

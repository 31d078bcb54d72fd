#!lua
-- vote.lua: one node's vote for a lease with a block of fences.
--
-- KEYS  1 lock   2 fence   [3 metadata]   [the last one: longest ttl, if the ttl is above 30000]
-- ARGV  1 lease id   2 ttl in ms   3 latest server time in us at which this may be granted
--       4 first fence of the block   5 number of fences
--       6 how far below this node's clock a block may begin, in us   7 how far above it may end
--       8 `always` if that applies in any case, or `` if only when no fence is stored
--       [9.. metadata: field, value, field, value ..., as for acquire.lua]
-- Reply 1                                vote given: the lock belongs to this lease for ttl ms
--       {'busy', lease id, ms left, floor}   another lease has it; -1 ms left means no expiry
--       {'stale', floor}                 the block must be above this
--       {'far', server time in us}       the block ends too far above this node's clock
--       {'late', server time in us}      the latest time has passed
--       {'type', type}                   the key is not a lock
-- Except for the first reply, nothing was changed, except that a ttl above 30000 is recorded as one
-- that leases may have: a node that restarts has no vote for 30 s, and its clients must know if
-- that is too short.
--@include whole.lua
--@include redlock/stored_fence.lua
--@include redlock/keep_longest.lua
--@include LAYOUT/lock.lua
--@include redlock/cast_vote.lua
--@include redlock/vote_for_one.lua

return vote_for_one(3, 9)

#!lua
-- finish_load.lua: start selling the item here, in one atomic step.
--
-- KEYS  1 gate   2 buyers   3 answers
-- ARGV  1 epoch   2 fence   3 state   4 units left, or '' if unlimited   5 number of the last change
--       6 starts   7 ends   8 limit   9 order_max   10 backlog_max   11 answers_kept   12 pay_within;
--       '' if none
-- Reply 1 if it is sold here, 0 if another load came in between, the server is a different one, or
--       what was loaded was deleted meanwhile
--
-- A repeated call finds that it was done, and does not touch the stock again.

--@include whole.lua
--@include server.lua
--@include now.lua
--@include marks.lua
--@include terms.lua

local gate = redis.call('HMGET', KEYS[1], 'epoch', 'fence', 'state', 'run', 'spread')
if gate[1] ~= ARGV[1] or gate[2] ~= ARGV[2] or gate[4] ~= server() then
  return 0
end
if gate[3] ~= 'loading' then
  return 1
end
if redis.call('HGET', KEYS[2], mark) ~= ARGV[1] or redis.call('HGET', KEYS[3], mark) ~= ARGV[1] then
  return 0
end
redis.call('HSET', KEYS[1], 'state', ARGV[3], 'change', ARGV[5], 'unlimited', ARGV[4] == '' and 1 or 0,
  'marked', 1, 'terms', terms_of(ARGV[8], ARGV[12]))
local fields = {'left', false, 'starts', 'ends', 'limit', 'order_max', 'backlog_max', 'answers_kept'}
for n, field in ipairs(fields) do
  if field and ARGV[3 + n] ~= '' then
    redis.call('HSET', KEYS[1], field, ARGV[3 + n])
  end
end
-- A shelf keeps a record of arrivals and departures, so that a shelf with missing units can be
-- identified, and arrivals between two reads are noticed.
if gate[5] ~= '1' and ARGV[4] ~= '' then
  redis.call('HSET', KEYS[1], 'came', ARGV[4], 'gone', 0)
end
if ARGV[8] == '' then
  redis.call('UNLINK', KEYS[2])
end
if ARGV[3] == 'closed' then
  redis.call('HSET', KEYS[1], 'forgets', plain(clock() + whole(ARGV[11]) * 1000))
  redis.call('PEXPIRE', KEYS[2], ARGV[11])
  redis.call('PEXPIRE', KEYS[3], ARGV[11])
end
return 1

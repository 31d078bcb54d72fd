#!lua
-- load_buyers.lua: add what buyers have, and answers to remember, to a load that has begun.
--
-- KEYS  1 gate   2 buyers   3 answers
-- ARGV  1 epoch   2 fence   3 how many buyers
--       from 4 on: buyer, units; then: key of the remembered answer, answer
-- Reply 1 if they were added, 0 if another load came in between or the server is a different one

--@include server.lua

local gate = redis.call('HMGET', KEYS[1], 'epoch', 'fence', 'state', 'run')
if gate[1] ~= ARGV[1] or gate[2] ~= ARGV[2] or gate[3] ~= 'loading' or gate[4] ~= server() then
  return 0
end
local buyers_end = 3 + 2 * tonumber(ARGV[3])
for n = 4, buyers_end, 2 do
  redis.call('HSET', KEYS[2], ARGV[n], ARGV[n + 1])
end
for n = buyers_end + 1, #ARGV, 2 do
  redis.call('HSET', KEYS[3], ARGV[n], ARGV[n + 1])
end
return 1

#!lua
-- once.lua: the steps of a run for one fire time of a schedule, and what is known of such runs.
--
-- KEYS  1 lock of the run   2 record of the last run
-- ARGV  1 step: `look`, `begin`, `complete` or `forget`   2 lease id of the run, `` for a look
--       3 for how many ms to remember the run   4 `retry` if it may follow a run that ended without
--       completing, or ``
-- Reply {'new'}                   no run is known
--       {'running', lease id}     this lease holds the lock: its run began, or is about to begin
--       {'ended', lease id}       this run began and did not complete, and its lease is gone
--       {'completed', lease id}   this run has completed
--       {'lost', lease id}        nothing was changed: not this run holds the lock or was the last to
--                                 begin, but the one with this lease id, or nil
--       {'type', type}            a key is not a string, nothing was changed
--
-- The record is `begun <lease id>` or `completed <lease id>`. Each step compares and writes at once, and
-- a repeated step finds what it has written. A run begins only while its lease holds the lock. It
-- completes if no other has begun since, even if its lease has ended meanwhile.
--@include whole.lua

local step, run, remember, retry = ARGV[1], ARGV[2], whole(ARGV[3]), ARGV[4] == 'retry'
if not remember or (step == 'begin' or step == 'complete') and remember < 1 then
  return redis.error_reply('ERR tenure: once: invalid number')
end

local refusal
local function read(key)
  local found = redis.pcall('GET', key)
  if type(found) ~= 'table' then
    return found
  end
  refusal = found
  if string.sub(found.err, 1, 9) == 'WRONGTYPE' then
    refusal = {'type', redis.call('TYPE', key).ok}
  end
end
local holder, record = read(KEYS[1]), read(KEYS[2])
if refusal then
  return refusal
end

-- The last run that began, and whether it has completed.
local last, is_completed = false, false
if record then
  local word, id = string.match(record, '^(%l+) (.+)$')
  if word ~= 'begun' and word ~= 'completed' then
    return redis.error_reply('ERR tenure: once: the record of runs is not one of ours')
  end
  last, is_completed = id, word == 'completed'
end

local function write(word)
  redis.call('SET', KEYS[2], word .. ' ' .. run, 'PX', remember)
end

if step == 'begin' then
  if holder ~= run then
    return {'lost', holder}
  end
  if is_completed then
    return {'completed', last}
  elseif last and last ~= run and not retry then
    return {'ended', last}
  end
  write('begun')
  return {'running', run}
elseif step == 'complete' then
  if last and last ~= run then
    return {'lost', last}
  elseif not last and holder ~= run then
    return {'lost', holder}
  end
  write('completed')
  return {'completed', run}
elseif step == 'forget' and last == run and not is_completed then
  redis.call('DEL', KEYS[2])
  last = false
end
if is_completed then
  return {'completed', last}
elseif holder then
  return {'running', holder}
elseif last then
  return {'ended', last}
end
return {'new'}

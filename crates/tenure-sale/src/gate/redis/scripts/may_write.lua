-- The error for a user without the rights to write orders, or nil. A script that is refused a command
-- has written what came before, so this is asked before the first write.
local function may_not_write(orders, answers)
  if not redis.acl_check_cmd or (redis.acl_check_cmd('XADD', orders, '*', 'buyer', '')
      and redis.acl_check_cmd('HSET', answers, 'request', '')) then
    return nil
  end
  return redis.error_reply('NOPERM tenure: this user has no permission to write orders: `XADD` and `HSET` are needed')
end

-- The dead letter of an order in its stream, which is in the order of burial.
local function dead_of(key, id)
  local from = '-'
  while true do
    local page = redis.call('XRANGE', key, from, '+', 'COUNT', 100)
    for _, dead in ipairs(page) do
      if dead[2][2] == id then
        return dead
      end
    end
    if #page < 100 then
      return nil
    end
    from = '(' .. page[#page][1]
  end
end

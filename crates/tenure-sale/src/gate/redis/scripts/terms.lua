-- The terms that an accepted order keeps, as its entry carries them: the limit and the time to pay,
-- empty if there is none.
local function terms_of(limit, pay_within)
  return limit .. '/' .. pay_within
end

-- the last answer of a client's lane.

-- The answer to this call, if the lane has it; else the number of a later call, if the lane is that far.
local function told_before(lane_key, number)
  local told = redis.call('GET', lane_key)
  if not told then return nil end
  local last, answers = string.match(told, '^(%d+):(%d*)$')
  last = tonumber(last) or 0
  if last == number then return answers end
  return nil, last > number and last or nil
end

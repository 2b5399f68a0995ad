-- the answer to a lane's last call.

-- The answer to the call with this number, if the lane has it; else nil, and the last number if that is higher.
local function earlier_answer(lane_key, number)
  local kept = redis.call('GET', lane_key)
  if not kept then return nil end
  local last, answers = string.match(kept, '^(%d+):(%d*)$')
  last = tonumber(last) or 0
  if last == number then return answers end
  return nil, last > number and last or nil
end

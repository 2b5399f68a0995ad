-- the answer to a lane's last call, and whether it still counts.

-- The answer to the call with this number, if the lane has it; else nil, and the last number if that is higher.
local function earlier_answer(lane_key, number)
  local kept = redis.call('GET', lane_key)
  if not kept then return nil end
  local last, answers = string.match(kept, '^(%d+):(%d*)$')
  last = tonumber(last) or 0
  if last == number then return answers end
  return nil, last > number and last or nil
end

-- When the filter was last cleared (ms), as its layout says; 0: not lately.
local function cleared_at(layout)
  return tonumber(string.match(layout, '^@(%d+);') or 0)
end

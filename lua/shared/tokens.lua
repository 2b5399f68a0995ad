-- a lane: the number of its last call that changed something, the answers, and the store's generation then:
-- "7:101:1557273600000000".
--
-- Includes   none

-- What a lane keeps of a call.
local function lane_entry(number, answers, generation)
  return number .. ':' .. answers .. ':' .. generation
end

-- The answers to the call with this number, if its lane has them, and they are of this generation (nil: of any); else nil,
-- and the last number if that is higher.
local function earlier_answer(lane_key, number, generation)
  local last, answers, kept_in = string.match(redis.call('GET', lane_key) or '', '^(%d+):(%d*):?(%d*)$')
  last = tonumber(last) or 0
  if last == number and (not generation or kept_in == generation) then return answers end
  return nil, last > number and last or nil
end

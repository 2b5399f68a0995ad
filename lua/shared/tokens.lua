-- a lane: the number of its last call that changed something, the answers, and the store's generation then:
-- "7:101:1557273600000000"; and ":1" if the call found that the server had dropped the current part early.
--
-- Includes   none

-- What a lane keeps of a call.
local function lane_entry(number, answers, generation, dropped)
  return number .. ':' .. answers .. ':' .. generation .. (dropped and ':1' or '')
end

-- The answers to the call with this number, if a lane's entry has them, and they are of this generation (nil: of any);
-- else nil, and the last number if that is higher. And 1 if the call found a dropped part.
local function kept_answers(entry, number, generation)
  if not entry then return nil end
  local last, answers, kept_in, dropped = string.match(entry, '^(%d+):(%d*):?(%d*):?(1?)$')
  last = tonumber(last) or 0
  if last == number and (not generation or kept_in == generation) then return answers, nil, dropped == '1' and 1 or nil end
  return nil, last > number and last or nil
end

-- The same, by the lane's key.
local function earlier_answer(lane_key, number, generation)
  return kept_answers(redis.call('GET', lane_key), number, generation)
end

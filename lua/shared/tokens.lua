-- the lanes of an exact filter or a mapping, which make a call safe to resend. A lane is a key. Its value has the number of the
-- lane's last call that changed something, the answers, and the store's generation at that time: '7:101:1557273600000000'.
--
-- Includes   none

-- Returns the value of a lane after a call.
local function lane_entry(number, answers, generation)
  return number .. ':' .. answers .. ':' .. generation
end

-- Returns the answers to the call with this number, if it was the lane's last call, in this generation (nil: in any). Otherwise
-- returns nil, and the number of the last call if that is higher.
local function earlier_answer(lane_key, number, generation)
  local last, answers, kept_in = string.match(redis.call('GET', lane_key) or '', '^(%d+):(%d*):?(%d*)$')
  last = tonumber(last) or 0
  if last == number and (not generation or kept_in == generation) then return answers end
  return nil, last > number and last or nil
end

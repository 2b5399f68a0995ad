-- when a call to an exact filter is not made.
--
-- Includes   buckets, parameters, tokens

-- The reply to a call that was answered before, or is refused; nil: it is to be made.
--   {0, answers, {}}  the lane's last answers. The token comes first: a call that is sent again gets its first answer, even
--                     if something has changed since, unless the filter was cleared
--   {3, number}      the lane has had a later call, so this is a stray copy of an answered one
--   {2, parameters}  the filter is stored with other parameters
--   {4, ''}          no parameters are stored here, and the client has not compared its own (open.lua)
--   {5, generation}  another generation is stored than the client's
-- A call without a token has no lane.
local function refusal(config_key, layout_key, config, agreed, generation, lane_key, number)
  local stored = generation_of(layout_key)
  if lane_key then
    local answered, last = earlier_answer(lane_key, number, stored)
    if answered then return {0, answered, {}} end
    if last then return {3, last} end
  end
  return disagreement(config_key, config, agreed) or stored ~= generation and {5, stored} or nil
end

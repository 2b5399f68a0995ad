-- lanes, which make a call safe to send again. A lane keeps its last call that changed something: the call's number, its minute
-- since the epoch (modulo 2^16, 4 digits), and its answers: '1f:9b3c101'. All three are hexadecimal digits: an answer with another
-- character would not be found again. In a filter, a lane is a field of the state, whose name begins with 'L'. In the other stores it
-- is a key, and the generation follows: '1f:9b3c101:1557273600000000'.
--
-- Includes   none

-- Returns the fields of a token: the number of the call, and the name of the lane. A token looks like '1f Lq3k_x1-A0'.
local function read_token(token)
  return string.match(token, '^(%x+) (.*)$')
end

-- Returns the answers to the call with this number, if it was the lane's last call, in this generation (nil: in any). Otherwise
-- returns nil, and the number of the last call if that is higher.
local function answers_in(entry, number, generation)
  if not entry then return nil end
  local last, answers, kept_in = string.match(entry, '^(%x+):%x%x%x%x(%x*):?(%d*)$')
  if last == number and (not generation or kept_in == generation) then return answers end
  local is_later = last and (#last > #number or #last == #number and last > number)
  return nil, is_later and tonumber(last, 16) or nil
end

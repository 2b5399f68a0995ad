-- the lanes of a filter, which make a call safe to resend. A lane is a field of the filter's state. Its name begins with 'L'. Its
-- value has the number of the lane's last call that changed something, the minute of that call since the epoch (modulo 2^16, 4
-- digits), both hexadecimal, and the call's answers: '1f:9b3c101'.
--
-- Includes   none

-- A lane that has been idle for longer than this (minutes) is deleted when a sweep finds it. (LANE_TTL_MS in engine/tokens.py
-- says why it is so long.)
local IDLE = 240

-- Returns the minute of a time (ms), as lanes store it.
local function minute_of(now)
  return math.floor(now / 60000) % 65536
end

-- Returns the two fields of a token: the number of the call, and the name of the lane. A token looks like '1f Lq3k_x1-A0'.
local function read_token(token)
  return string.match(token, '^(%x+) (.*)$')
end

-- Returns the answers to the call with this number, if it was the lane's last call. Otherwise returns nil, and the number of the
-- last call if that is higher.
local function answers_in(entry, number)
  if not entry then return nil end
  local last, answers = string.match(entry, '^(%x+):%x%x%x%x(%d*)$')
  if last == number then return answers end
  local is_later = last and (#last > #number or #last == #number and last > number)
  return nil, is_later and tonumber(last, 16) or nil
end

-- Returns the value of a lane after a call.
local function lane_entry(number, answers, now)
  return string.format('%s:%04x%s', number, minute_of(now), answers)
end

-- Looks at 8 random fields of a filter's state. Removes idle lanes, and the counts of parts whose slice is older than `oldest`.
local function sweep(state, oldest, now)
  local some = redis.call('HRANDFIELD', state, '8', 'WITHVALUES')
  for i = 1, #some, 2 do
    local field, minute = some[i], string.match(some[i + 1], '^%x+:(%x%x%x%x)')
    local is_lane = string.sub(field, 1, 1) == 'L'
    local idle = is_lane and minute and (minute_of(now) - tonumber(minute, 16)) % 65536
    -- If a lane has been idle for more than half of 2^16 minutes, its minute is in the future: the clock was set back.
    if
      idle and idle > IDLE and idle < 32768
      or not is_lane and field ~= 'layout' and string.match(field, '^[^:]*') < oldest
    then
      redis.call('HDEL', state, field)
    end
  end
end

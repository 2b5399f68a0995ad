-- the lanes of a filter: fields of its state that make a call safe to resend. 'L...' -> the number of the lane's last call
-- that changed something, the minute of it since the epoch (modulo 2^16, 4 digits), both hexadecimal, and its answers:
-- '1f:9b3c101'.
--
-- Includes   none

-- A lane that has been idle for so long (minutes) is eventually forgotten.
local IDLE = 60

-- The minute of a time (ms), as a lane has it.
local function minute_of(now)
  return math.floor(now / 60000) % 65536
end

-- A token: the number of a call, as its lane has it, and the lane. '1f Lq3k_x1-A0'
local function read_token(token)
  return string.match(token, '^(%x+) (.*)$')
end

-- The answers to the call with this number, if they are a lane's last ones; else nil, and the last number if that is higher.
local function answers_in(entry, number)
  if not entry then return nil end
  local last, answers = string.match(entry, '^(%x+):%x%x%x%x(%d*)$')
  if last == number then return answers end
  local is_later = last and (#last > #number or #last == #number and last > number)
  return nil, is_later and tonumber(last, 16) or nil
end

-- What a lane keeps of a call.
local function lane_entry(number, answers, now)
  return string.format('%s:%04x%s', number, minute_of(now), answers)
end

-- Looks at some fields of a filter's state, and removes idle lanes, and the counts of parts of slices before `oldest`.
local function sweep(state, oldest, now)
  local some = redis.call('HRANDFIELD', state, '8', 'WITHVALUES')
  for i = 1, #some, 2 do
    local field, minute = some[i], string.match(some[i + 1], '^%x+:(%x%x%x%x)')
    local is_lane = string.sub(field, 1, 1) == 'L'
    local idle = is_lane and minute and (minute_of(now) - tonumber(minute, 16)) % 65536
    -- (Beyond half of 2^16, the clock was set back.)
    if
      idle and idle > IDLE and idle < 32768
      or not is_lane and field ~= 'layout' and string.match(field, '^[^:]*') < oldest
    then
      redis.call('HDEL', state, field)
    end
  end
end

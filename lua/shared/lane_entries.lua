-- what a call leaves in its lane (shared/lanes.lua), and the removal of idle lanes from a filter's state.
--
-- Includes   none

-- A lane that has been idle for longer than this (minutes) is deleted when a sweep finds it. (LANE_TTL_MS in engine/tokens.py
-- says why it is so long.)
local IDLE = 240

-- Returns the minute of a time (ms), as lanes store it.
local function minute_of(now)
  return math.floor(now / 60000) % 65536
end

-- Returns the value of a lane after a call. `generation` is for stores whose lanes are keys; otherwise nil.
local function lane_entry(number, answers, now, generation)
  local entry = string.format('%s:%04x%s', number, minute_of(now), answers)
  return generation and entry .. ':' .. generation or entry
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

-- the server's clock.
--
-- Includes   none

-- The server's clock (ms).
local function server_time()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- A name for what begins now: the server's clock (us), 16 digits.
local function new_generation()
  local time = redis.call('TIME')
  return string.format('%010d%06d', time[1], time[2])
end

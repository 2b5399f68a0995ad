-- the server's clock.
--
-- Includes   none

-- Returns the server's time (ms).
local function server_time()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

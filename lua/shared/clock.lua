-- the server's clock.
--
-- Includes   none

-- The server's clock (ms).
local function server_time()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

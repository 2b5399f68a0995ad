-- the server's clock.
--
-- Includes   none

-- Returns the server's time (ms).
local function server_time()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Returns the server's time (ms). If it is not within the slice that the client believes current, also returns the reply {1, now}.
local function time_within(begins, ends)
  local now = server_time()
  if now < begins or now >= ends then return now, {1, now} end
  return now
end

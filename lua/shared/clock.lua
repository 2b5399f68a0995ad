-- the server's clock.
--
-- Includes   none

-- The server's clock (ms).
local function server_time()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- The same; and the reply to a client whose current slice it is not in: {1, now}.
local function time_within(begins, ends)
  local now = server_time()
  if now < begins or now >= ends then return now, {1, now} end
  return now
end

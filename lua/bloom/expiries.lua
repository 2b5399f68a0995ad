-- expiries: when keys of a shard are dropped, by the clock of the server that holds them. Changes nothing.
--
-- KEYS[1]    any of the shard's keys
-- KEYS[2..]  more of them
--
-- Reply      {now, times}     the server's clock (ms), and when each key is dropped (ms); -1: never; -2: it is not there
-- Errors     none

local now, times = server_time(), {}
for i = 1, #KEYS do
  local left = redis.call('PTTL', KEYS[i])
  times[i] = left < 0 and left or now + left
end
return {now, times}

-- expiries: when keys of a shard are dropped, by the clock of the server that holds them. Changes nothing.
--
-- Includes   clock
--
-- KEYS[1]    any of the shard's keys
-- KEYS[2..]  more of them
--
-- Reply      {0, {now, time, ...}}  the server's clock (ms), and for each key the time at which it is dropped (ms);
--                                   -1: never; -2: the key is missing
-- Errors     none

local now = server_time()
local times = {now}
for i = 1, #KEYS do
  local left = redis.call('PTTL', KEYS[i])
  times[i + 1] = left < 0 and left or now + left
end
return {0, times}

-- distinct_usage: how much memory some keys of a mapping take, overhead included.
--
-- KEYS[1]    a key
-- KEYS[2..]  further ones
--
-- Reply      bytes
-- Errors     none

local bytes = 0
for i = 1, #KEYS do bytes = bytes + (redis.call('MEMORY', 'USAGE', KEYS[i]) or 0) end
return bytes

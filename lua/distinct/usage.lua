-- distinct_usage: how much memory some keys of a mapping take, overhead included. All fields are looked at: those of a
-- directory have from 3 bytes to 8 KB.
--
-- KEYS[1]    a key
-- KEYS[2..]  further ones
--
-- Reply      bytes
-- Errors     none

local bytes = 0
for i = 1, #KEYS do bytes = bytes + (redis.call('MEMORY', 'USAGE', KEYS[i], 'SAMPLES', 0) or 0) end
return bytes

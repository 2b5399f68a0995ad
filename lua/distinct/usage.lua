-- usage: the memory of some keys, overhead included. It samples all fields, because those of a directory have 3 bytes to
-- 8 KB each.
--
-- Includes   none
--
-- KEYS[1]    a key
-- KEYS[2..]  further ones
--
-- Reply      bytes
-- Errors     none

local bytes = 0
for i = 1, #KEYS do bytes = bytes + (redis.call('MEMORY', 'USAGE', KEYS[i], 'SAMPLES', 0) or 0) end
return bytes

-- restore_shard: rename the parts of a shard, which the client has written under temporary names, to their final names.
--
-- Includes   generations, ttls
--
-- KEYS[1]    the filter's parameters
-- KEYS[2]    its state (add.lua)
-- KEYS[3..]  the temporary names of the parts, then their final names in the same order
--
-- ARGV[1]    the parameters
-- ARGV[2]    when parameters and state expire (ms)
-- ARGV[3]    the layout without its version: a new generation begins
-- ARGV[4..]  three arguments for each part: its field in the state, the number of its items, and when it expires (ms)
--
-- Reply      {0, ''}          done
--            {2, parameters}  a filter of this name is stored already; nothing changed
--            {8, key}         the server has dropped the part with this temporary name; nothing changed
-- Errors     WRONGTYPE, OOM, READONLY, each before anything is changed

local config_key, state, FIRST_PART = KEYS[1], KEYS[2], 3
local parts = (#KEYS - FIRST_PART + 1) / 2

local stored = redis.call('GET', config_key)
if stored then return {2, stored} end
for part = FIRST_PART, FIRST_PART + parts - 1 do
  if redis.call('PTTL', KEYS[part]) == -2 then return {8, KEYS[part]} end -- it is missing
  -- GETBIT raises WRONGTYPE, so that another program's key is not overwritten.
  redis.call('GETBIT', KEYS[part + parts], 0)
end
redis.call('HLEN', state)

redis.call('SET', config_key, ARGV[1])
expire_at(config_key, ARGV[2])
redis.call('HSET', state, 'layout', first_layout(ARGV[3]), 'cleared', '1') -- what is restored is no loss (open.lua)
expire_at(state, ARGV[2])
for i = 0, parts - 1 do
  local part, field, count, expires = KEYS[FIRST_PART + parts + i], unpack(ARGV, 4 + 3 * i, 6 + 3 * i)
  redis.call('RENAME', KEYS[FIRST_PART + i], part)
  expire_at(part, expires)
  redis.call('HSET', state, field, count)
end
return {0, ''}

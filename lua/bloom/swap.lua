-- swap: put one shard of a filter in the place of another filter's, which is forgotten. Both have the same hash tags and
-- parameters.
--
-- KEYS[1]    the parameters of the filter that is replaced
-- KEYS[2]    its layout (add.lua)
-- KEYS[3]    its register of parts
-- KEYS[4]    the parameters of the other filter
-- KEYS[5]    its layout
-- KEYS[6]    its register
-- KEYS[7]    its claims
-- KEYS[8]    its sessions
-- KEYS[9..]  all parts of live slices of the first filter; then those of the other one; then the names that these get
--
-- ARGV[1]    the parameters of both
-- ARGV[2]    when the client believes that the current slice begins (ms)
-- ARGV[3]    when it ends (ms)
-- ARGV[4]    when it leaves the window (ms)
-- ARGV[5]    the first filter's layout, as the client knows it
-- ARGV[6]    the other one's
-- ARGV[7]    the number of the first filter's parts
--
-- Reply      {0, ''}          done
--            {1, now}         the server's clock (ms) is not within ARGV[2..3]; nothing changed
--            {2, parameters}  one of them is stored with other parameters; nothing changed
--            {4, ''}          the other filter has no parameters here: it was swapped before; nothing changed
--            {5, layout}      the first filter's stored layout is another one; nothing changed
--            {5, layout, 1}   the other filter's; nothing changed
-- Errors     WRONGTYPE, OOM, READONLY, each before anything is changed

local config_key, layout_key, register, FIRST_PART = KEYS[1], KEYS[2], KEYS[3], 9
local new_config, new_layout, new_register = KEYS[4], KEYS[5], KEYS[6]
local config, begins, ends, expires = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local layout, other_layout, old_parts = ARGV[5], ARGV[6], tonumber(ARGV[7])
local parts = (#KEYS - FIRST_PART + 1 - old_parts) / 2

local now = server_time()
if now < begins or now >= ends then return {1, now} end

local stored, stored_new = redis.call('GET', config_key), redis.call('GET', new_config)
if not stored_new then return {4, ''} end
if stored_new ~= config then return {2, stored_new} end
if stored and stored ~= config then return {2, stored} end
local stored_layout = redis.call('GET', layout_key) or ''
if stored_layout ~= layout then return {5, stored_layout} end
local stored_other = redis.call('GET', new_layout) or ''
if stored_other ~= other_layout then return {5, stored_other, 1} end
-- Another program's key stays: GETBIT and HLEN raise WRONGTYPE.
for part = FIRST_PART, #KEYS do redis.call('GETBIT', KEYS[part], 0) end
for _, hash in ipairs({register, new_register, KEYS[7], KEYS[8]}) do redis.call('HLEN', hash) end

-- Out of memory, and on a replica, the server refuses the first write.
set_until(config_key, config, expires)
redis.call('UNLINK', register)
for part = FIRST_PART, FIRST_PART + old_parts - 1 do redis.call('UNLINK', KEYS[part]) end
for i = FIRST_PART + old_parts, FIRST_PART + old_parts + parts - 1 do
  local dropped = redis.call('HGET', new_register, KEYS[i])
  if redis.call('EXISTS', KEYS[i]) == 1 then redis.call('RENAME', KEYS[i], KEYS[i + parts]) end
  -- One that the server has dropped early is entered too, so that it is noticed.
  if dropped then redis.call('HSET', register, KEYS[i + parts], dropped) end
end
redis.call('RENAME', new_layout, layout_key)
drop_at(layout_key, expires)
if redis.call('EXISTS', register) == 1 then drop_at(register, expires) end
redis.call('UNLINK', new_config, new_register, KEYS[7], KEYS[8])
return {0, ''}

-- swap: put a filter in the place of another one, which is forgotten. Both have one shard, the same hash tag and the same
-- parameters.
--
-- Includes   clock, keys, layouts, tokens
--
-- KEYS[1]    the parameters of the filter that is replaced
-- KEYS[2]    the client's lane (shared/tokens.lua)
-- KEYS[3]    its layout (shared/layouts.lua)
-- KEYS[4]    its register of parts
-- KEYS[5]    the parameters of the other filter
-- KEYS[6]    its layout
-- KEYS[7]    its register
-- KEYS[8]    its claims
-- KEYS[9]    its sessions
-- KEYS[10..] all parts of live slices of the first filter, and those of its register; then those of live slices of the
--            other one; then the names that these get
--
-- ARGV[1]    the parameters of both
-- ARGV[2]    the call's number in its lane; lane and number are its token
-- ARGV[3]    when the client believes that the current slice begins (ms)
-- ARGV[4]    when it ends (ms)
-- ARGV[5]    when it leaves the window (ms)
-- ARGV[6]    how long a lane is kept at most (ms)
-- ARGV[7]    the version of the first filter's layout, as the client knows it
-- ARGV[8]    that of the other one's
-- ARGV[9]    the number of the first filter's parts
--
-- Reply      {0, ''}          done
--            {1, now}         the server's clock (ms) is not within ARGV[3..4]; nothing changed
--            {2, parameters}  one of them is stored with other parameters; nothing changed
--            {3, number}      the lane is at a later call: this one was executed before; nothing changed
--            {4, ''}          the other filter's parameters or its layout are missing; nothing changed
--            {5, layout}      the first filter's stored layout has another version; nothing changed
--            {5, layout, 1}   the other filter's; nothing changed
-- Errors     WRONGTYPE, OOM, READONLY, each before anything is changed

local config_key, lane_key, layout_key, register, FIRST_PART = KEYS[1], KEYS[2], KEYS[3], KEYS[4], 10
local new_config, new_layout, new_register = KEYS[5], KEYS[6], KEYS[7]
local config, number = ARGV[1], tonumber(ARGV[2])
local begins, ends, expires = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local lane_ttl, version, other_version, old_parts = tonumber(ARGV[6]), ARGV[7], ARGV[8], tonumber(ARGV[9])
local parts = (#KEYS - FIRST_PART + 1 - old_parts) / 2

-- A second copy would put the next filter, half built, in the place of this one.
local earlier, last = earlier_answer(lane_key, number)
if earlier then return {0, ''} end
if last then return {3, last} end

local now = server_time()
if now < begins or now >= ends then return {1, now} end

local stored, stored_new = redis.call('GET', config_key), redis.call('GET', new_config)
local stored_other = redis.call('GET', new_layout)
if not stored_new or not stored_other then return {4, ''} end
if stored_new ~= config then return {2, stored_new} end
if stored and stored ~= config then return {2, stored} end
local stored_layout = redis.call('GET', layout_key) or ''
if version_of(stored_layout) ~= version then return {5, stored_layout} end
if version_of(stored_other) ~= other_version then return {5, stored_other, 1} end
-- Another program's key stays: GETBIT and HLEN raise WRONGTYPE.
for part = FIRST_PART, #KEYS do redis.call('GETBIT', KEYS[part], 0) end
for _, hash in ipairs({register, new_register, KEYS[8], KEYS[9]}) do redis.call('HLEN', hash) end

-- Out of memory, and on a replica, the server refuses the first write.
redis.call('SET', lane_key, lane_entry(ARGV[2], '', ''), 'PX', math.min(lane_ttl, expires - now))
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
redis.call('UNLINK', new_config, new_register, KEYS[8], KEYS[9])
return {0, ''}

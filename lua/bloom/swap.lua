-- swap: put a filter in the place of another one, which is forgotten. Both have one shard, the same hash tag and the same
-- parameters.
--
-- Includes   clock, keys, lanes, layouts
--
-- KEYS[1]    the parameters of the filter that is replaced
-- KEYS[2]    its state (add.lua)
-- KEYS[3]    the parameters of the other filter
-- KEYS[4]    its state
-- KEYS[5]    its claims
-- KEYS[6]    its sessions
-- KEYS[7..]  all parts of live slices of the first filter, and those that its state counts; then those of live slices of
--            the other one; then the names that these get
--
-- ARGV[1]    the token (shared/lanes.lua)
-- ARGV[2]    the parameters of both
-- ARGV[3]    when the client believes that the current slice begins (ms)
-- ARGV[4]    when it ends (ms)
-- ARGV[5]    when it leaves the window (ms)
-- ARGV[6]    the version of the first filter's layout, as the client knows it
-- ARGV[7]    that of the other one's
-- ARGV[8]    the number of the first filter's parts
--
-- Reply      {0, ''}          done
--            {1, now}         the server's clock (ms) is not within ARGV[3..4]; nothing changed
--            {2, parameters}  one of them is stored with other parameters; nothing changed
--            {3, number}      the lane is at a later call: this one was executed before; nothing changed
--            {4, ''}          the other filter's parameters or its layout are missing; nothing changed
--            {5, layout}      the first filter's stored layout has another version; nothing changed
--            {5, layout, 1}   the other filter's; nothing changed
-- Errors     WRONGTYPE, OOM, READONLY, each before anything is changed

local config_key, state, new_config, new_state, FIRST_PART = KEYS[1], KEYS[2], KEYS[3], KEYS[4], 7
local number, lane = read_token(ARGV[1])
local config, begins, ends, expires = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local version, other_version, old_parts = ARGV[6], ARGV[7], tonumber(ARGV[8])
local parts = (#KEYS - FIRST_PART + 1 - old_parts) / 2

-- A second copy would put the next filter, half built, in the place of this one.
local kept = redis.call('HMGET', state, 'layout', lane)
local earlier, last = answers_in(kept[2], number)
if earlier then return {0, ''} end
if last then return {3, last} end

local now, refused = time_within(begins, ends)
if refused then return refused end

local stored, stored_new = redis.call('GET', config_key), redis.call('GET', new_config)
local layout, other = kept[1] or '', redis.call('HGET', new_state, 'layout')
if not stored_new or not other then return {4, ''} end
if stored_new ~= config then return {2, stored_new} end
if stored and stored ~= config then return {2, stored} end
if version_of(layout) ~= version then return {5, layout} end
if version_of(other) ~= other_version then return {5, other, 1} end
-- Another program's key stays: GETBIT and HLEN raise WRONGTYPE.
for part = FIRST_PART, #KEYS do redis.call('GETBIT', KEYS[part], 0) end
for hash = 5, 6 do redis.call('HLEN', KEYS[hash]) end

-- Out of memory, and on a replica, the server refuses the first write.
redis.call('HSET', new_state, lane, lane_entry(number, '', now))
redis.call('SET', config_key, config)
drop_at(config_key, expires)
for part = FIRST_PART, FIRST_PART + old_parts - 1 do redis.call('UNLINK', KEYS[part]) end
for i = FIRST_PART + old_parts, FIRST_PART + old_parts + parts - 1 do
  if redis.call('EXISTS', KEYS[i]) == 1 then redis.call('RENAME', KEYS[i], KEYS[i + parts]) end
end
redis.call('RENAME', new_state, state)
drop_at(state, expires)
redis.call('UNLINK', new_config, KEYS[5], KEYS[6])
return {0, ''}

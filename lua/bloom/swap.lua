-- swap: put a filter in the place of another one, which is forgotten. Both have one shard, the same hash tag and the same
-- parameters.
--
-- Includes   calls, keys, lanes
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
-- ARGV[2]    what the calls of the slice share (shared/calls.lua); the version is that of the first filter's layout
-- ARGV[3]    the parameters of both
-- ARGV[4]    the version of the other filter's layout, as the client knows it
-- ARGV[5]    the number of the first filter's parts
--
-- Reply      {0, ''}          done
--            {2, parameters}  one of them is stored with other parameters; nothing changed
--            {3, number}      the lane is at a later call: this one was executed before; nothing changed
--            {4, ''}          the other filter's parameters or its layout are missing; nothing changed
--            {1, now}, {5, layout, parameters}  refused (shared/calls.lua); nothing changed
--            {5, layout, parameters, 1}  the same, for the layout of the other filter
-- Errors     WRONGTYPE, OOM, READONLY, each before anything is changed

local config_key, state, new_config, new_state, FIRST_PART = KEYS[1], KEYS[2], KEYS[3], KEYS[4], 7
local number, lane = read_token(ARGV[1])
local begins, ends, expires, _, _, _, version = read_constants(ARGV[2])
local config, other_version, old_parts = ARGV[3], ARGV[4], tonumber(ARGV[5])
local parts = (#KEYS - FIRST_PART + 1 - old_parts) / 2

-- A second copy would put the next filter, half built, in the place of this one.
local kept = redis.call('HMGET', state, 'layout', lane)
local earlier, last = answers_in(kept[2], number)
if earlier then return {0, ''} end
if last then return {3, last} end

local stored, stored_new = redis.call('GET', config_key), redis.call('GET', new_config)
local layout, other = kept[1] or '', redis.call('HGET', new_state, 'layout')
if not stored_new or not other then return {4, ''} end
if stored_new ~= config then return {2, stored_new} end
if stored and stored ~= config then return {2, stored} end
local now, refused = refusal(begins, ends, layout, version, config_key)
if refused then return refused end
if version_of(other) ~= other_version then return {5, other, stored_new, 1} end
-- Another program's key stays: GETBIT and HLEN raise WRONGTYPE.
for part = FIRST_PART, #KEYS do redis.call('GETBIT', KEYS[part], 0) end
for hash = 5, 6 do redis.call('HLEN', KEYS[hash]) end

-- Out of memory, and on a replica, the server refuses the first write.
redis.call('HSET', new_state, lane, lane_entry(number, '', now))
for part = FIRST_PART, FIRST_PART + old_parts - 1 do redis.call('UNLINK', KEYS[part]) end
for i = FIRST_PART + old_parts, FIRST_PART + old_parts + parts - 1 do
  if redis.call('EXISTS', KEYS[i]) == 1 then redis.call('RENAME', KEYS[i], KEYS[i + parts]) end
end
redis.call('RENAME', new_config, config_key)
redis.call('RENAME', new_state, state)
prolong(config_key, expires, now)
prolong(state, expires, now)
redis.call('UNLINK', KEYS[5], KEYS[6])
return {0, ''}

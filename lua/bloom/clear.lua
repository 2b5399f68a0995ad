-- clear: forget everything that the filter has seen, and its parameters.
--
-- Includes   clock, layouts, tokens
--
-- KEYS[1]    the filter's parameters
-- KEYS[2]    the client's lane (shared/tokens.lua)
-- KEYS[3]    the layout (shared/layouts.lua)
-- KEYS[4]    the register of parts
-- KEYS[5]    the claims
-- KEYS[6]    the sessions that hold claims
-- KEYS[7..]  all parts of live slices, and those of the register
--
-- ARGV[1]    the client's parameters
-- ARGV[2]    the call's number in its lane; lane and number are its token
-- ARGV[3]    when the client believes that the current slice begins (ms)
-- ARGV[4]    when it ends (ms)
-- ARGV[5]    when it leaves the window (ms)
-- ARGV[6]    how long a lane is kept at most (ms)
-- ARGV[7]    the version of the client's layout; '': it knows of none
--
-- Reply      {0, keys}        the number of keys that were deleted
--            {1, now}         the server's clock (ms) is not within ARGV[3..4]; nothing changed
--            {2, parameters}  the filter is stored with other parameters, so with other slices; nothing changed
--            {3, number}      the lane is at this call or a later one: the filter was cleared before; nothing changed
--            {5, layout}      the stored layout has another version; nothing changed
-- Errors     WRONGTYPE, OOM, READONLY, each before anything is changed

local config_key, lane_key, layout_key, FIRST_PART = KEYS[1], KEYS[2], KEYS[3], 7
local config, number = ARGV[1], tonumber(ARGV[2])
local begins, ends, expires = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local lane_ttl, version = tonumber(ARGV[6]), ARGV[7]

-- A second copy would forget what others have added meanwhile.
local earlier, last = earlier_answer(lane_key, number)
if earlier or last then return {3, last or number} end

local now = server_time()
if now < begins or now >= ends then return {1, now} end

local stored = redis.call('GET', config_key)
if stored and stored ~= config then return {2, stored} end
local stored_layout = redis.call('GET', layout_key) or ''
if version_of(stored_layout) ~= version then return {5, stored_layout} end
-- Another program's key stays: GETBIT and HLEN raise WRONGTYPE.
for part = FIRST_PART, #KEYS do redis.call('GETBIT', KEYS[part], 0) end
for hash = 4, 6 do redis.call('HLEN', KEYS[hash]) end

redis.call('SET', lane_key, lane_entry(ARGV[2], '', ''), 'PX', math.min(lane_ttl, expires - now))
local keys = redis.call('UNLINK', config_key, layout_key, KEYS[4], KEYS[5], KEYS[6])
for part = FIRST_PART, #KEYS do keys = keys + redis.call('UNLINK', KEYS[part]) end
return {0, keys}

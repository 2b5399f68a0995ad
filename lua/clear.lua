-- clear: forget everything that the filter has seen, and its parameters.
--
-- KEYS[1]    the filter's parameters
-- KEYS[2]    the caller's lane: the token and the answer of its last call that changed something
-- KEYS[3..]  live slices
--
-- ARGV[1]    the parameters that the caller works with
-- ARGV[2]    this call's number in its lane; with the lane's name, its token
-- ARGV[3]    when the newest slice begins, as the caller believes (ms)
-- ARGV[4]    when it ends (ms)
-- ARGV[5]    when the newest slice leaves the window (ms)
-- ARGV[6]    how long a lane is kept at most (ms)
--
-- Reply      {0, keys}        how many keys there were
--            {1, now}         the server's clock (ms) is not within ARGV[3..4]; nothing changed
--            {2, parameters}  the filter is stored with others, so with other slices; nothing changed
--            {3, number}      the lane is at this call or further on: it was made before; nothing changed
-- Errors     WRONGTYPE, OOM, READONLY, all of them before anything is changed

local config_key, lane_key, FIRST_SLICE = KEYS[1], KEYS[2], 3
local config, number = ARGV[1], tonumber(ARGV[2])
local begins, ends, expires = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local lane_ttl = tonumber(ARGV[6])

-- Made again, it would forget what others have added meanwhile.
local last = redis.call('GET', lane_key)
last = last and tonumber(string.match(last, '^%d+'))
if last and last >= number then return {3, last} end

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if now < begins or now >= ends then return {1, now} end

local stored = redis.call('GET', config_key)
if stored and stored ~= config then return {2, stored} end
-- Somebody else's key of another type is not ours to remove: GETBIT raises WRONGTYPE.
for slice = FIRST_SLICE, #KEYS do redis.call('GETBIT', KEYS[slice], 0) end

redis.call('SET', lane_key, ARGV[2] .. ':0', 'PX', math.min(lane_ttl, expires - now))
local keys = redis.call('UNLINK', config_key)
for slice = FIRST_SLICE, #KEYS do keys = keys + redis.call('UNLINK', KEYS[slice]) end
return {0, keys}

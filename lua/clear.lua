-- clear: forget everything that the filter has seen, and its parameters.
--
-- KEYS[1]    the filter's parameters
-- KEYS[2..]  live slices
--
-- ARGV[1]    the parameters that the caller works with
-- ARGV[2]    when the newest slice begins, as the caller believes (ms)
-- ARGV[3]    when it ends (ms)
--
-- Reply      {0, keys}        how many keys there were
--            {1, now}         the server's clock (ms) is not within ARGV[2..3]; nothing changed
--            {2, parameters}  the filter is stored with others, so with other slices; nothing changed
-- Errors     WRONGTYPE, READONLY, all of them before anything is changed

local config_key, config = KEYS[1], ARGV[1]
local begins, ends = tonumber(ARGV[2]), tonumber(ARGV[3])

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if now < begins or now >= ends then return {1, now} end

local stored = redis.call('GET', config_key)
if stored and stored ~= config then return {2, stored} end

return {0, redis.call('UNLINK', unpack(KEYS))}

-- open: agree on a sharded filter's parameters. The shards keep copies; this key is the one that clients compare with.
--
-- Includes   clock, keys
--
-- KEYS[1]    the filter's parameters, found by its name alone
--
-- ARGV[1]    the client's parameters
-- ARGV[2]    when the client believes that the current slice begins (ms)
-- ARGV[3]    when it ends (ms)
-- ARGV[4]    when it leaves the window (ms)
-- ARGV[5]    0: change nothing; 1: store the parameters where there are none, and keep them as long as the slice
--
-- Reply      {0, ''}          agreed
--            {1, now}         the server's clock (ms) is not within ARGV[2..3]; nothing changed
--            {2, parameters}  the filter is stored with other parameters; nothing changed
-- Errors     WRONGTYPE, OOM, READONLY, each before anything is changed

local root, config = KEYS[1], ARGV[1]
local begins, ends, expires = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local store = ARGV[5] == '1'

local now = server_time()
if now < begins or now >= ends then return {1, now} end

local stored = redis.call('GET', root)
if stored and stored ~= config then return {2, stored} end
if store then keep(root, config, expires, now) end
return {0, ''}

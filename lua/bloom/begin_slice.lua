-- begin_slice: give a slice that begins other parts than the usual one, unless the layout has changed meanwhile.
--
-- KEYS[1]    the filter's parameters
-- KEYS[2]    the layout (add.lua)
-- KEYS[3]    the first part of the slice that begins
--
-- ARGV[1]    the client's parameters
-- ARGV[2]    the client's layout
-- ARGV[3]    the new layout: with an entry for the current slice, without those of slices that have left
-- ARGV[4]    the new layout if the slice had begun before the server's clock was set back: its usual part, which
--            holds items, and one more
-- ARGV[5]    when the client believes that the current slice begins (ms)
-- ARGV[6]    when it ends (ms)
-- ARGV[7]    when it leaves the window (ms)
--
-- Reply      {1, now}         the server's clock (ms) is not within ARGV[5..6]; nothing changed
--            {2, parameters}  the filter is stored with other parameters; nothing changed
--            {5, layout}      the layout that is now stored
-- Errors     WRONGTYPE, OOM, READONLY, each before anything is changed

local config_key, layout_key, first_part = KEYS[1], KEYS[2], KEYS[3]
local config, layout, new_layout, new_if_begun = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local begins, ends, expires = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])

local now = server_time()
if now < begins or now >= ends then return {1, now} end

local stored_config = redis.call('GET', config_key)
if stored_config and stored_config ~= config then return {2, stored_config} end
local stored = redis.call('GET', layout_key) or ''
if stored ~= layout then return {5, stored} end
if redis.call('EXISTS', first_part) == 1 then new_layout = new_if_begun end
keep(layout_key, new_layout, expires, now)
return {5, new_layout}

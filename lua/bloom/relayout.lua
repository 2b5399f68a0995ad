-- relayout: give a slice that begins other parts than the usual one, unless the layout was changed meanwhile.
--
-- KEYS[1]    the filter's parameters
-- KEYS[2]    the layout: the parts of those slices that have not just the one that every slice begins with
-- KEYS[3]    the first part of the slice that begins
--
-- ARGV[1]    the parameters that the caller works with
-- ARGV[2]    the layout that the caller knows
-- ARGV[3]    the layout that it should become: with an entry for the current slice, without those gone
-- ARGV[4]    what it should become where the slice has begun already, before the clock was set back: the
--            usual part, which holds items, and one more
-- ARGV[5]    when the current slice begins, as the caller believes (ms)
-- ARGV[6]    when it ends (ms)
-- ARGV[7]    when it leaves the window (ms)
--
-- Reply      {1, now}         the server's clock (ms) is not within ARGV[5..6]; nothing changed
--            {2, parameters}  the filter is stored with others; nothing changed
--            {5, layout}      the layout that is stored then
-- Errors     WRONGTYPE, OOM, READONLY, all of them before anything is changed

local config_key, layout_key, first_part = KEYS[1], KEYS[2], KEYS[3]
local config, known, wanted, wanted_if_begun = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local begins, ends, expires = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])

local now = server_time()
if now < begins or now >= ends then return {1, now} end

local stored_config = redis.call('GET', config_key)
if stored_config and stored_config ~= config then return {2, stored_config} end
local stored = redis.call('GET', layout_key) or ''
if stored ~= known then return {5, stored} end
if redis.call('EXISTS', first_part) == 1 then wanted = wanted_if_begun end
keep(layout_key, wanted, expires, now)
return {5, wanted}

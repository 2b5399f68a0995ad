-- begin_slice: give a slice that begins other parts than the usual one, unless the layout has changed meanwhile.
--
-- Includes   clock, keys, layouts
--
-- KEYS[1]    the filter's parameters
-- KEYS[2]    its state (add.lua)
-- KEYS[3]    the first part of the slice that begins
--
-- ARGV[1]    the client's parameters
-- ARGV[2]    the version of the client's layout
-- ARGV[3]    the part that the slice begins with
-- ARGV[4]    how the slice grows (grown_layout in shared/layouts.lua), for the case that it had begun before the server's
--            clock was set back: its usual part holds items, and it gets one more
-- ARGV[5]    when the client believes that the current slice begins (ms)
-- ARGV[6]    when it ends (ms)
-- ARGV[7]    when it leaves the window (ms)
--
-- Reply      {1, now}         the server's clock (ms) is not within ARGV[5..6]; nothing changed
--            {2, parameters}  the filter is stored with other parameters; nothing changed
--            {5, layout}      the layout that is now stored
-- Errors     WRONGTYPE, OOM, READONLY, each before anything is changed

local config_key, state, first_part = KEYS[1], KEYS[2], KEYS[3]
local config, version, part, growth = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local begins, ends, expires = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])

local now = server_time()
if now < begins or now >= ends then return {1, now} end

local stored_config = redis.call('GET', config_key)
if stored_config and stored_config ~= config then return {2, stored_config} end
local stored = redis.call('HGET', state, 'layout') or ''
-- Without a layout there is nothing to begin: the filter was cleared meanwhile.
if version_of(stored) ~= version or stored == '' then return {5, stored} end
local layout
if redis.call('EXISTS', first_part) == 1 then
  layout = grown_layout(stored, growth)
else
  local oldest, slice = string.match(growth, '^(%S+) %S+ %S+ (%S+)')
  layout = next_layout(stored, {[slice] = part}, oldest)
end
redis.call('HSET', state, 'layout', layout)
prolong(state, expires, now)
return {5, layout}

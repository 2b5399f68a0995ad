-- set_layout: give a slice other parts, unless the layout has changed meanwhile. A slice begins with a part of another size
-- than the usual one, or gets a further part because its newest one is full.
--
-- Includes   header, generations, keys
--
-- KEYS[1]    the filter's parameters
-- KEYS[2]    its state (add.lua)
--
-- ARGV[1]    the header (shared/header.lua). Nothing changes unless the chosen part holds `capacity`
--            items: all that it may have; 0 where the slice begins
-- ARGV[2]    the entries of the layout from now on
--
-- Reply      {5, layout}      the layout that is now stored
--            {1, now}, {4, ''}, {5, layout, parameters}  refused (shared/header.lua); nothing changed
-- Errors     WRONGTYPE, OOM, READONLY, each before anything is changed

local config_key, state, entries = KEYS[1], KEYS[2], ARGV[2]
local begins, ends, expires, capacity, _, _, version, field = read_header(ARGV[1])

local stored = redis.call('HMGET', state, 'layout', field)
local layout, count = stored[1], items_in(stored[2])
local now, refused = refusal(begins, ends, layout, version, config_key)
if refused then return refused end
if count >= capacity then
  layout = changed_layout(layout, entries)
  redis.call('HSET', state, 'layout', layout)
  extend(config_key, expires, now)
  extend(state, expires, now)
end
return {5, layout}

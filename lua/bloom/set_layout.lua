-- set_layout: replace the entries of the layout, unless another client has changed it meanwhile. A slice begins with a part
-- that is larger or smaller than the default one, or gets a further part because its newest part is full.
--
-- Includes   chosen, generations, ttls
--
-- KEYS[1]    the filter's parameters
-- KEYS[2]    its state (add.lua)
--
-- ARGV[1]    the header (shared/header.lua). Nothing changes unless the chosen part holds as many items as the header's
--            capacity, which is 0 if the slice begins
-- ARGV[2]    the new entries of the layout
--
-- Reply      {5, layout}      the layout that is now stored
--            {1, now}, {4, ''}, {5, layout, parameters}  refused (shared/header.lua); nothing changed
-- Errors     WRONGTYPE, OOM, READONLY, each before anything is changed

local config_key, state, entries = KEYS[1], KEYS[2], ARGV[2]
local begins, ends, version = read_header(ARGV[1])
local expires, capacity, _, field = read_chosen(ARGV[1])

local stored = redis.call('HMGET', state, 'layout', field)
local layout, count = stored[1], items_in(stored[2])
local now, refused = refusal(begins, ends, layout, version, config_key)
if refused then return refused end
if count >= capacity then
  layout = next_layout(layout, entries)
  redis.call('HSET', state, 'layout', layout)
  extend_ttl(config_key, expires, now)
  extend_ttl(state, expires, now)
end
return {5, layout}

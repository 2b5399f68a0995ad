-- reconfigure: replace the parameters of a filter, or of one of its shards, and keep its items.
--
-- Includes   chosen, generations, ttls
--
-- KEYS[1]    the filter's parameters
-- KEYS[2]    its state (add.lua). KEYS[2..] are missing for the root key of several shards (open.lua)
-- KEYS[3..]  all parts of live and of later slices
--
-- ARGV[1]    the old parameters
-- ARGV[2]    the new parameters
-- ARGV[3]    the header (shared/header.lua); the version is that of the old layout
-- ARGV[4]    the entries of the new layout, with an entry for each slice that has the old parameters
-- ARGV[5..]  for each part in KEYS, when its slice leaves the window (ms)
--
-- Reply      {0, ''}          done, by this call or an earlier one
--            {2, parameters}  the filter is stored with neither of these parameters; nothing changed
--            {4, ''}          no parameters are stored; nothing changed
--            {1, now}, {5, layout, parameters}  refused (shared/header.lua); nothing changed
-- Errors     WRONGTYPE, OOM, READONLY, each before anything is changed

local config_key, state, FIRST_PART = KEYS[1], KEYS[2], 3
local old_config, new_config, entries, FIRST_EXPIRY = ARGV[1], ARGV[2], ARGV[4], 5
local begins, ends, version = read_header(ARGV[3])
local expires = read_chosen(ARGV[3])
-- (The root key of several shards has no layout.)
local layout = state and (redis.call('HGET', state, 'layout') or '') or version
local new_layout

local config = redis.call('GET', config_key)
if config == new_config then return {0, ''} end
if not config then return {4, ''} end
if config ~= old_config then return {2, config} end
local now, refused = refusal(begins, ends, layout, version, config_key)
if refused then return refused end
if state then
  -- If the layout is missing, the server has dropped it.
  new_layout = layout == '' and first_layout(entries) or next_layout(layout, entries)
  -- GETBIT raises WRONGTYPE, so that another program's key gets no TTL.
  for part = FIRST_PART, #KEYS do redis.call('GETBIT', KEYS[part], 0) end
end

redis.call('SET', config_key, new_config, 'KEEPTTL')
give_or_extend_ttl(config_key, expires, now) -- later slices exist if the clock was set back, and leave later
if state then
  redis.call('HSET', state, 'layout', new_layout)
  give_or_extend_ttl(state, expires, now)
end
for i = 0, #KEYS - FIRST_PART do expire_at(KEYS[FIRST_PART + i], ARGV[FIRST_EXPIRY + i]) end
return {0, ''}

-- reconfigure: give a filter, or one shard of it, other parameters, and keep what it has seen.
--
-- Includes   clock, generations, keys, layouts
--
-- KEYS[1]    the filter's parameters
-- KEYS[2]    its state (add.lua). KEYS[2..] are missing for the key that a sharded filter's clients compare their
--            parameters with (open.lua)
-- KEYS[3..]  all parts of live slices
--
-- ARGV[1]    the old parameters
-- ARGV[2]    the new parameters
-- ARGV[3]    the version of the old layout
-- ARGV[4]    the entries of the new one, with one for each slice made under the old parameters
-- ARGV[5]    when the client believes that the current slice begins (ms)
-- ARGV[6]    when it ends (ms)
-- ARGV[7]    when it leaves the window (ms)
-- ARGV[8..]  when the slice of each part from KEYS[3] on leaves the window (ms)
--
-- Reply      {0, ''}          done, now or before
--            {1, now}         the server's clock (ms) is not within ARGV[5..6]; nothing changed
--            {2, parameters}  the filter is stored with neither of these parameters; nothing changed
--            {4, ''}          no parameters are stored; nothing changed
--            {5, layout}      the stored layout has another version; nothing changed
-- Errors     WRONGTYPE, OOM, READONLY, each before anything is changed

local config_key, state, FIRST_PART = KEYS[1], KEYS[2], 3
local old_config, new_config, version, entries = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local new_layout
local begins, ends, expires, FIRST_EXPIRY = tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7], 8

local now, refused = time_within(begins, ends)
if refused then return refused end

local config = redis.call('GET', config_key)
if config == new_config then return {0, ''} end
if not config then return {4, ''} end
if config ~= old_config then return {2, config} end
if state then
  local layout = redis.call('HGET', state, 'layout') or ''
  if version_of(layout) ~= version then return {5, layout} end
  -- Without a layout, the server has dropped the old one.
  new_layout = layout == '' and begun_layout(entries) or changed_layout(layout, entries)
  -- Another program's key gets no TTL: GETBIT raises WRONGTYPE.
  for part = FIRST_PART, #KEYS do redis.call('GETBIT', KEYS[part], 0) end
end

redis.call('SET', config_key, new_config)
drop_at(config_key, expires)
if state then
  redis.call('HSET', state, 'layout', new_layout)
  drop_at(state, expires)
end
for i = 0, #KEYS - FIRST_PART do drop_at(KEYS[FIRST_PART + i], ARGV[FIRST_EXPIRY + i]) end
return {0, ''}

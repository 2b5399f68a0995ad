-- open: agree on a filter's parameters, and begin the filter where there is none.
--
-- Includes   header, generations, keys
--
-- KEYS[1]    the filter's parameters. With several shards, clients first compare theirs with those that are found by the
--            name alone, the root's; the shards keep copies
-- KEYS[2]    the state of the shard (add.lua); missing for the root of several shards
--
-- ARGV[1]    the client's parameters
-- ARGV[2]    the header (shared/header.lua)
-- ARGV[3]    0: change nothing; 1: store the parameters where there are none, and keep them as long as the slice
-- ARGV[4]    the entries of a layout that begins now; '' or missing: none
--
-- Reply      {0, ''}          agreed; of a shard: there is none
--            {1, now}         refused (shared/header.lua); nothing changed
--            {2, parameters}  the filter is stored with other parameters; nothing changed
--            {5, layout}      agreed; the shard's layout, which may begin now
-- Errors     WRONGTYPE, OOM, READONLY, each before anything is changed

local config_key, state, config = KEYS[1], KEYS[2], ARGV[1]
local begins, ends, expires = read_header(ARGV[2])
local store = ARGV[3] == '1'

local now, refused = time_within(begins, ends)
if refused then return refused end

local stored = redis.call('GET', config_key)
if stored and stored ~= config then return {2, stored} end
local layout = state and redis.call('HGET', state, 'layout')
if stored and layout then
  if store and lacks_ttl(config_key, expires) then drop_at(config_key, expires) end
  if store and lacks_ttl(state, expires) then drop_at(state, expires) end
  return {5, layout}
end
if not store then return {0, ''} end
redis.call('SET', config_key, config, 'KEEPTTL')
prolong(config_key, expires, now)
if not state then return {0, ''} end
if not layout then
  layout = begun_layout(ARGV[4] or '')
  redis.call('HSET', state, 'layout', layout)
  drop_at(state, expires) -- not later than its parameters, though a lane was left there before the clock was set back
end
return {5, layout}

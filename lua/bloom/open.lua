-- open: compare the client's parameters with the stored ones. If no filter is stored, begin one.
--
-- Includes   chosen, generations, ttls
--
-- KEYS[1]    the filter's parameters. With several shards, clients first compare theirs with the parameters at the root key,
--            whose name follows from the filter's name alone. Each shard has a copy
-- KEYS[2]    the state of the shard (add.lua); missing for the root key of several shards
--
-- ARGV[1]    the client's parameters
-- ARGV[2]    the header (shared/header.lua)
-- ARGV[3]    0: change nothing; 1: if no parameters are stored, store the client's, until the slice leaves the window
-- ARGV[4]    the entries of the layout, if the filter begins now; '' or missing: none
-- ARGV[5]    the generation in which the client has stored what should be remembered still; '' or missing: none. If the filter is of
--            another one, and was not cleared, the server has lost it: the state gets the field 'lost', the time (ms)
--
-- Reply      {0, ''}          the parameters are equal, or none were stored. A shard with this reply has no layout
--            {1, now}         refused (shared/header.lua); nothing changed
--            {2, parameters}  the filter is stored with other parameters; nothing changed
--            {5, layout}      the parameters are equal; the shard's layout, which may be new
-- Errors     WRONGTYPE, OOM, READONLY, each before anything is changed

local config_key, state, config = KEYS[1], KEYS[2], ARGV[1]
local begins, ends = read_header(ARGV[2])
local expires = read_chosen(ARGV[2])
local store, known = ARGV[3] == '1', ARGV[5] or ''

local now, refused = refusal(begins, ends, '', '', config_key) -- only by the time: layouts are compared below
if refused then return refused end

local function note_loss(layout)
  if known == '' or string.sub(layout, 1, #known) == known then return end
  if not (redis.call('HGET', state, 'cleared') or redis.call('HGET', state, 'lost')) then
    redis.call('HSET', state, 'lost', string.format('%.0f', now))
  end
end

local stored = redis.call('GET', config_key)
if stored and stored ~= config then return {2, stored} end
local layout = state and redis.call('HGET', state, 'layout')
if stored and layout then
  if store and lacks_ttl(config_key, expires) then expire_at(config_key, expires) end
  if store and lacks_ttl(state, expires) then expire_at(state, expires) end
  if store then note_loss(layout) end
  return {5, layout}
end
if not store then return {0, ''} end
redis.call('SET', config_key, config, 'KEEPTTL')
give_or_extend_ttl(config_key, expires, now)
if not state then return {0, ''} end
if not layout then
  layout = first_layout(ARGV[4] or '')
  redis.call('HSET', state, 'layout', layout)
  expire_at(state, expires) -- a lane from before the clock was set back may have given it a later time than its parameters have
end
note_loss(layout)
return {5, layout}

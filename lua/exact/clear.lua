-- clear: forgets all items of a shard, and the parameters. Later items belong to another generation, with other buckets.
-- The client deletes this generation's buckets; those that it leaves expire.
--
-- Includes   buckets, parameters, tokens
--
-- KEYS[1]    the client's lane (shared/tokens.lua)
-- KEYS[2]    the filter's parameters
-- KEYS[3]    the layout: the generation, 16 digits; then a bit for each bucket, from number 0 on
--
-- ARGV[1]    this call's number in the lane; with the lane's name, its token
-- ARGV[2]    the client's parameters
-- ARGV[3]    how long a lane's answer is kept at most (ms)
-- ARGV[4]    the generation that the client has just read; '': none, or a layout that is not tbloom's
--
-- Reply      {0, ''}          done
--            {2, parameters}  the filter is stored with other parameters; nothing changed
--            {3, number}      the lane has had a later call, so this is a stray copy of an answered one; nothing changed
--            {5, generation}  another generation is stored; nothing changed
-- Errors     WRONGTYPE, OOM, READONLY, all of them before anything is changed

local lane_key, config_key, layout_key = KEYS[1], KEYS[2], KEYS[3]
local number, config, lane_ttl, generation = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3]), ARGV[4]

local answered, last = earlier_answer(lane_key, number)
if answered then return {0, answered} end
if last then return {3, last} end

local refusal = disagreement(config_key, config, true)
if refusal then return refusal end
-- Else a late copy would forget what was added since. WRONGTYPE: another program's key is not removed.
local stored = generation_of(layout_key)
local is_valid = stored == '' or #stored == 16 and not string.find(stored, '%D')
if is_valid and stored ~= generation then return {5, stored} end

redis.call('SET', lane_key, lane_entry(ARGV[1], '', ''), 'PX', lane_ttl)
redis.call('UNLINK', config_key, layout_key)
return {0, ''}

-- clear: delete a shard's layout and parameters, and so forget its items. Later items get another generation, with other
-- buckets. The client then deletes this generation's buckets; if it does not, they expire.
--
-- Includes   buckets, clock, lane_entries, lanes, parameters
--
-- KEYS[1]    the client's lane (shared/lanes.lua)
-- KEYS[2]    the filter's parameters
-- KEYS[3]    the layout: the generation, 16 digits, then a bit for each bucket from number 0 on
--
-- ARGV[1]    the token (shared/lanes.lua)
-- ARGV[2]    the client's parameters
-- ARGV[3]    the longest time for which the lane is kept (ms)
-- ARGV[4]    the generation that the client has just read; '' for none, or for a layout that is not tbloom's
--
-- Reply      {0, ''}          done
--            {2, parameters}  the filter is stored with other parameters; nothing changed
--            {3, number}      the lane has had a later call: this is a stray copy of an answered call; nothing changed
--            {5, generation}  another generation is stored; nothing changed
-- Errors     WRONGTYPE, READONLY, each before anything is changed. UNLINK is the first write, because a server whose memory is full
--            refuses others (bloom/clear.lua)

local lane_key, config_key, layout_key = KEYS[1], KEYS[2], KEYS[3]
local number, config, lane_ttl, generation = read_token(ARGV[1]), ARGV[2], tonumber(ARGV[3]), ARGV[4]

local answered, last = answers_in(redis.call('GET', lane_key), number)
if answered then return {0, answered} end
if last then return {3, last} end

local refusal = disagreement(config_key, config, true)
if refusal then return refusal end
-- Without this check, a late copy would forget items that were added since. If the key is another program's, reading it raises
-- WRONGTYPE, so that it is not deleted.
local stored = generation_of(layout_key)
local is_valid = stored == '' or #stored == 16 and not string.find(stored, '%D')
if is_valid and stored ~= generation then return {5, stored} end

redis.call('UNLINK', config_key, layout_key)
redis.call('SET', lane_key, lane_entry(number, '', server_time(), ''), 'PX', lane_ttl)
return {0, ''}

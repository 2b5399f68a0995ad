-- forget: forgets the ids of a mapping that has no counters any more. Later ids belong to another generation, with other
-- buckets. The client deletes this generation's buckets; their layout is kept until then.
--
-- KEYS[1]    the client's lane: the number and the answer of its last call that changed something
-- KEYS[2]    the mapping's parameters
-- KEYS[3]    the mapping's layout
-- KEYS[4]    the number of ids that the mapping has given
-- KEYS[5]    the parameters of the mapping's counters, by name
-- KEYS[6]    the former layout, whose buckets are to be deleted
--
-- ARGV[1]    this call's number in the lane; with the lane's name, its token
-- ARGV[2]    the mapping's parameters, as the client knows them
-- ARGV[3]    how long a lane's answer is kept at most (ms)
--
-- Reply      {0, ''}          done
--            {2, parameters}  the mapping is stored with other parameters; nothing changed
--            {3, number}      the lane has had a later call, so this is a stray copy of an answered one; nothing changed
--            {9, ''}          there are counters, or a former layout, whose buckets must be deleted first; nothing changed
-- Errors     WRONGTYPE, OOM, READONLY, all of them before anything is changed

local lane_key, mapping_key, layout_key, members_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local counters_key, forgotten_key, LONGEST = KEYS[5], KEYS[6], 16 + 2 ^ 23
local number, mapping, lane_ttl = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3])

local answered, last = earlier_answer(lane_key, number)
if answered then return {0, answered} end
if last then return {3, last} end
local refusal = disagreement(mapping_key, mapping, true)
if refusal then return refusal end
redis.call('GET', members_key) -- WRONGTYPE: another program's key is not removed
local generation = generation_of(layout_key)
if redis.call('HLEN', counters_key) > 0 or generation_of(forgotten_key) ~= '' then return {9, ''} end

redis.call('SET', lane_key, ARGV[1] .. ':', 'PX', lane_ttl)
-- (What is not tbloom's layout names no buckets.)
if #generation == 16 and is_number(generation) and redis.call('STRLEN', layout_key) <= LONGEST then
  redis.call('RENAME', layout_key, forgotten_key)
end
redis.call('UNLINK', mapping_key, layout_key, members_key)
return {0, ''}

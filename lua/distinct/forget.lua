-- distinct_forget: forget the ids that a mapping has given, once no counter counts them any more. What comes next is of
-- another generation, in other buckets. Those of this one are the caller's to delete; their layout is kept until then.
--
-- KEYS[1]    the caller's lane: the token and the answer of its last call that changed something
-- KEYS[2]    the mapping's parameters
-- KEYS[3]    the mapping's layout
-- KEYS[4]    how many ids the mapping has given
-- KEYS[5]    the parameters of the mapping's counters, by name
-- KEYS[6]    the layout whose buckets are to be deleted
--
-- ARGV[1]    this call's number in its lane; with the lane's name, its token
-- ARGV[2]    the mapping's parameters, as the caller knows them
-- ARGV[3]    how long a lane is kept at most (ms)
--
-- Reply      {0, ''}          done
--            {2, parameters}  the mapping is stored with others; nothing changed
--            {3, number}      the lane is further on: this is a stray copy of an answered call; nothing changed
--            {5, ''}          there are counters, or another layout's buckets are still to be deleted; nothing changed
-- Errors     WRONGTYPE, OOM, READONLY, all of them before anything is changed

local lane_key, mapping_key, layout_key, members_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local counters_key, forgotten_key, LONGEST = KEYS[5], KEYS[6], 16 + 2 ^ 23
local number, mapping, lane_ttl = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3])

local answered, last = told_before(lane_key, number)
if answered then return {0, answered} end
if last then return {3, last} end
local refusal = other_parameters(mapping_key, mapping, true)
if refusal then return refusal end
redis.call('GET', members_key) -- WRONGTYPE: somebody else's key is not ours to remove
local generation = generation_of(layout_key)
if redis.call('HLEN', counters_key) > 0 or generation_of(forgotten_key) ~= '' then return {5, ''} end

redis.call('SET', lane_key, ARGV[1] .. ':', 'PX', lane_ttl)
-- (By what is no layout no bucket can be found.)
if #generation == 16 and is_number(generation) and redis.call('STRLEN', layout_key) <= LONGEST then
  redis.call('RENAME', layout_key, forgotten_key)
end
redis.call('UNLINK', mapping_key, layout_key, members_key)
return {0, ''}

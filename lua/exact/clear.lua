-- exact_clear: forget all items of a shard, and the parameters. What comes next is of another generation, in other
-- buckets. Those of this one are the caller's to delete; what it leaves, expires.
--
-- KEYS[1]    the caller's lane: the token and the answer of its last call that changed something
-- KEYS[2]    the filter's parameters
-- KEYS[3]    the layout: the generation, 16 digits; then the bits, one for each bucket, from number 0 on
--
-- ARGV[1]    this call's number in its lane; with the lane's name, its token
-- ARGV[2]    the parameters that the caller works with
-- ARGV[3]    how long a lane is kept at most (ms)
--
-- Reply      {0, ''}          done
--            {2, parameters}  the filter is stored with others; nothing changed
--            {3, number}      the lane is further on: this is a stray copy of an answered call; nothing changed
-- Errors     WRONGTYPE, OOM, READONLY, all of them before anything is changed

local lane_key, config_key, layout_key = KEYS[1], KEYS[2], KEYS[3]
local number, config, lane_ttl = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3])

local answered, last = told_before(lane_key, number)
if answered then return {0, answered} end
if last then return {3, last} end

local refusal = other_parameters(config_key, config, true)
if refusal then return refusal end
generation_of(layout_key) -- WRONGTYPE: somebody else's key is not ours to remove

redis.call('SET', lane_key, ARGV[1] .. ':', 'PX', lane_ttl)
redis.call('UNLINK', config_key, layout_key)
return {0, ''}

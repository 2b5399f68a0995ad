-- distinct_clear: forget what a counter has counted, in some slices or all, and its parameters. The ids that the mapping
-- has given stay.
--
-- KEYS[1]    the caller's lane: the token and the answer of its last call that changed something
-- KEYS[2]    the mapping's parameters
-- KEYS[3]    the parameters of the mapping's counters, by name
-- KEYS[4..]  the directories of the counter's slices; then the bitmaps of the first one, of the second one, ...
--
-- ARGV[1]    this call's number in its lane; with the lane's name, its token
-- ARGV[2]    the mapping's parameters, as the caller knows them
-- ARGV[3]    the counter's name
-- ARGV[4]    the counter's parameters, as the caller knows them
-- ARGV[5]    how long a lane is kept at most (ms)
-- ARGV[6]    1: these are the last slices, so the parameters go too; 0: more calls follow
-- ARGV[7]    how many slices there are
-- ARGV[8..]  how many bitmaps of each slice are in KEYS, then which chunks those are, slice by slice
--
-- Reply      {0, ''}          done
--            {2, parameters}  the mapping is stored with others; nothing changed
--            {2, parameters, 1}  the counter is; nothing changed
--            {3, number}      the lane is further on: this is a stray copy of an answered call; nothing changed
--            {5, ''}          there are more bitmaps; nothing changed
-- Errors     WRONGTYPE, OOM, READONLY, all of them before anything is changed

local lane_key, mapping_key, counters_key, FIRST_KEY, FIRST_SLICE = KEYS[1], KEYS[2], KEYS[3], 4, 8
local number, mapping, counter, parameters = tonumber(ARGV[1]), ARGV[2], ARGV[3], ARGV[4]
local lane_ttl, is_last, slices = tonumber(ARGV[5]), ARGV[6] == '1', tonumber(ARGV[7])

local answered, last = told_before(lane_key, number)
if answered then return {0, answered} end
if last then return {3, last} end
local refusal = other_parameters(mapping_key, mapping, true)
if refusal then return refusal end
local stored = redis.call('HGET', counters_key, counter)
if stored and stored ~= parameters then return {2, stored, 1} end

local argument = FIRST_SLICE + slices
for slice = 0, slices - 1 do
  local named = {}
  for _ = 1, tonumber(ARGV[FIRST_SLICE + slice]) do
    named[tonumber(ARGV[argument])], argument = true, argument + 1
  end
  for _, chunk in ipairs((bitmaps_in(KEYS[FIRST_KEY + slice]))) do
    if not named[chunk] then return {5, ''} end
  end
end

redis.call('SET', lane_key, ARGV[1] .. ':', 'PX', lane_ttl)
for i = FIRST_KEY, #KEYS, 1000 do redis.call('UNLINK', unpack(KEYS, i, math.min(i + 999, #KEYS))) end
if is_last then redis.call('HDEL', counters_key, counter) end
return {0, ''}

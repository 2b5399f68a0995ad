-- clear: forgets what a counter has counted in some slices, and with the last slices its parameters. The ids stay in the
-- mapping.
--
-- KEYS[1]    the client's lane: the number and the answer of its last call that changed something
-- KEYS[2]    the mapping's parameters
-- KEYS[3]    the parameters of the mapping's counters, by name
-- KEYS[4..]  the directories of the counter's slices; then the bitmaps of the first one, of the second one, ...
--
-- ARGV[1]    this call's number in the lane; with the lane's name, its token
-- ARGV[2]    the mapping's parameters, as the client knows them
-- ARGV[3]    the counter's name
-- ARGV[4]    the counter's parameters, as the client knows them
-- ARGV[5]    how long a lane's answer is kept at most (ms)
-- ARGV[6]    1: these are the last slices, so the parameters are removed too; 0: more calls follow
-- ARGV[7]    the number of slices
-- ARGV[8..]  for each slice, the number of its bitmaps in KEYS; then the chunks that these are, slice by slice
--
-- Reply      {0, ''}          done
--            {2, parameters}  the mapping is stored with other parameters; nothing changed
--            {2, parameters, 1}  the counter is stored with other parameters; nothing changed
--            {3, number}      the lane has had a later call, so this is a stray copy of an answered one; nothing changed
--            {5, ''}          the slices have bitmaps that are not in KEYS; nothing changed
-- Errors     WRONGTYPE, OOM, READONLY, all of them before anything is changed

local lane_key, mapping_key, counters_key, FIRST_KEY, FIRST_SLICE = KEYS[1], KEYS[2], KEYS[3], 4, 8
local number, mapping, counter, parameters = tonumber(ARGV[1]), ARGV[2], ARGV[3], ARGV[4]
local lane_ttl, is_last, slices = tonumber(ARGV[5]), ARGV[6] == '1', tonumber(ARGV[7])

local answered, last = earlier_answer(lane_key, number)
if answered then return {0, answered} end
if last then return {3, last} end
local refusal = disagreement(mapping_key, mapping, true)
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

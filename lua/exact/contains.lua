-- contains: which of these items are remembered? Changes nothing.
--
-- KEYS[1]    the filter's parameters
-- KEYS[2]    the layout: the generation, 16 digits; then a bit for each bucket, from number 0 on
-- KEYS[3..]  for each item, the bucket that the client knows, and that bucket's halves
--
-- ARGV[1]    the client's parameters
-- ARGV[2]    1: the client has compared them; 0: they must be stored here, or be compared first (open.lua)
-- ARGV[3]    the generation that the client knows; '': none
-- ARGV[4..]  for each item, the number of the half that it belongs to, and its fingerprint, 16 bytes
--
-- Reply      {0, answers, splits}  answers: a character per item: 1 seen; 0 not; 2 it is in another bucket: read the
--                             layout and send it again. splits: those of the client's buckets that have been split
--            {2, parameters}  the filter is stored with other parameters
--            {4, ''}          no parameters are stored here, and the client has not compared its own
--            {5, generation}  another generation is stored
-- Errors     WRONGTYPE

local config_key, layout_key, FIRST_KEY, FIRST_ITEM = KEYS[1], KEYS[2], 3, 4
local config, agreed, generation = ARGV[1], ARGV[2] == '1', ARGV[3]

local refusal = disagreement(config_key, config, agreed)
if refusal then return refusal end
local stored_generation = generation_of(layout_key)
if stored_generation ~= generation then return {5, stored_generation} end

local answers, splits, items = {}, {}, (#ARGV - FIRST_ITEM + 1) / 2
if generation == '' then return {0, string.rep('0', items), splits} end
local now = since(generation, server_time())
for i = 0, items - 1 do
  local argument = FIRST_ITEM + 2 * i
  local at = place(layout_key, FIRST_KEY + 3 * i, tonumber(ARGV[argument]), splits)
  if not at then
    answers[i + 1] = '2'
  else
    local expires = redis.call('ZSCORE', KEYS[at], ARGV[argument + 1])
    answers[i + 1] = expires and tonumber(expires) > now and '1' or '0'
  end
end
return {0, table.concat(answers), splits}

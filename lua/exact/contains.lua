-- contains: which of these items are remembered? Changes nothing.
--
-- Includes   clock, refusals
--
-- KEYS[1]    the filter's parameters
-- KEYS[2]    the layout: the generation, 16 digits; then a bit for each bucket, from number 0 on
-- KEYS[3..]  the items' buckets, as the client knows them, each followed by its halves (place in shared/buckets.lua)
--
-- ARGV[1]    the client's parameters
-- ARGV[2]    1: the client has compared them; 0: they must be stored here, or be compared first (open.lua)
-- ARGV[3]    the generation that the client knows; '': none
-- ARGV[4]    the items (half_at in shared/buckets.lua)
-- ARGV[5]    1: the reply has times
--
-- Reply      {0, answers, splits, times}  answers: a character per item: 1 seen; 0 not; 2 it is in another bucket: read
--                             the layout and send it again. splits: those of the client's buckets that have been split.
--                             times: when each of the seen items expires (ms), if ARGV[5] is 1
--            {2, parameters}, {4, ''}, {5, generation}  refused (shared/refusals.lua)
-- Errors     WRONGTYPE

local config_key, layout_key, FIRST_KEY = KEYS[1], KEYS[2], 3
local config, agreed, generation, items = ARGV[1], ARGV[2] == '1', ARGV[3], ARGV[4]
local has_times = ARGV[5] == '1'

local refused = refusal(config_key, layout_key, config, agreed, generation)
if refused then return refused end
if generation == '' then return {0, string.rep('0', #items / 20), {}, {}} end

local answers, times, directory = {}, {}, directory_of(layout_key, FIRST_KEY)
local now = server_time()
local began = now - since(generation, now)
for i = 0, #items / 20 - 1 do
  local at = place(directory, items, i)
  if not at then
    answers[i + 1] = '2'
  else
    local expires = redis.call('ZSCORE', KEYS[at], fingerprint_at(items, i))
    expires = expires and began + expires
    local is_seen = expires and expires > now
    answers[i + 1] = is_seen and '1' or '0'
    if is_seen and has_times then times[#times + 1] = expires end
  end
end
return {0, table.concat(answers), directory.splits, times}

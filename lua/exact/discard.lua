-- discard: forgets these items. Which of them were remembered until now?
--
-- Includes   clock, refusals
--
-- KEYS[1]    the client's lane (shared/tokens.lua)
-- KEYS[2]    the filter's parameters
-- KEYS[3]    the layout: the generation, 16 digits; then a bit for each bucket, from number 0 on
-- KEYS[4..]  the items' buckets, as the client knows them, each followed by its halves (place in shared/buckets.lua)
--
-- ARGV[1]    this call's number in the lane; with the lane's name, its token
-- ARGV[2]    the client's parameters
-- ARGV[3]    1: the client has compared them; 0: they must be stored here, or be compared first (open.lua)
-- ARGV[4]    the generation that the client knows; '': none
-- ARGV[5]    how long a lane's answer is kept (ms)
-- ARGV[6]    the items (half_at in shared/buckets.lua)
--
-- Reply      {0, answers, splits}  answers: a character per item: 1 forgotten; 0 it was not remembered, or had expired; 2 it
--                             is in another bucket: read the layout and send it again. splits: those of the client's
--                             buckets that have been split
--            {2, parameters}, {3, number}, {4, ''}, {5, generation}  refused (shared/refusals.lua); nothing changed
-- Errors     WRONGTYPE, OOM, READONLY, all of them before anything is changed

local lane_key, config_key, layout_key, FIRST_KEY = KEYS[1], KEYS[2], KEYS[3], 4
local number, config, agreed, generation = tonumber(ARGV[1]), ARGV[2], ARGV[3] == '1', ARGV[4]
local lane_ttl, items = tonumber(ARGV[5]), ARGV[6]

local refused = refusal(config_key, layout_key, config, agreed, generation, lane_key, number)
if refused then return refused end
if generation == '' then return {0, string.rep('0', #items / 20), {}} end

local entry_now = since(generation, server_time())
local answers, found, directory = {}, {}, directory_of(layout_key, FIRST_KEY)
for item = 0, #items / 20 - 1 do
  local at = place(directory, items, item)
  local expires = at and redis.call('ZSCORE', KEYS[at], fingerprint_at(items, item))
  if expires then found[item] = KEYS[at] end
  answers[item + 1] = not at and '2' or expires and tonumber(expires) > entry_now and '1' or '0'
end
answers = table.concat(answers)

-- Out of memory, and on a replica, the server refuses the first write, so that one changes nothing. Also an answer that
-- found nothing is kept, because an item may be added before a late copy arrives.
redis.call('SET', lane_key, lane_entry(ARGV[1], answers, generation), 'PX', lane_ttl)
for item, key in pairs(found) do redis.call('ZREM', key, fingerprint_at(items, item)) end
return {0, answers, directory.splits}

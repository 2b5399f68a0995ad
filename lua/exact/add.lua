-- add: which of these items are new? Remembers the new ones for the given time.
--
-- The items are spread over buckets: small sorted sets, fingerprint -> time at which it expires. A bucket that gets too
-- large is split into two halves; the layout has a bit for each bucket that has been split (extendible hashing: R. Fagin
-- et al., 1979). The script checks the token, the parameters and the generation. Then it (1) looks up all items, (2) adds
-- those that are missing, and (3) sweeps dead entries out of some more buckets.
--
-- Includes   clock, generations, refusals
--
-- KEYS[1]    the client's lane (shared/tokens.lua)
-- KEYS[2]    the filter's parameters
-- KEYS[3]    the layout: the generation, 16 digits; then a bit for each bucket, from number 0 on
-- KEYS[4..]  the items' buckets, as the client knows them, each followed by its halves (place in shared/buckets.lua); then
--            the buckets to sweep
--
-- ARGV[1]    this call's number in the lane; with the lane's name, its token
-- ARGV[2]    the client's parameters
-- ARGV[3]    1: the parameters may be stored if there are none; 0: they must be compared first (open.lua)
-- ARGV[4]    the generation that the client knows; '': none
-- ARGV[5]    how long the items are remembered (ms)
-- ARGV[6]    how long a lane's answer is kept at most (ms)
-- ARGV[7]    the limit of entries in a bucket; with more it is split
-- ARGV[8]    the number of the last bucket that may be split
-- ARGV[9]    the items (half_at in shared/buckets.lua)
-- ARGV[10..]  the numbers of the buckets to sweep
--
-- Reply      {0, answers, splits, dead, left}  answers: a character per item: 0 seen; 1 new; 2 not added, because the
--                             half that it belongs to has been split, or must be: read the layout and send it again.
--                             splits: those of the client's buckets that have been split. dead, left: the numbers of
--                             entries that were swept out of the last buckets in KEYS, and that are left in them
--            {2, parameters}, {3, number}, {4, ''}, {5, generation}  refused (shared/refusals.lua); nothing changed
--            {5, generation}  also with '' in ARGV[4], and none stored: the parameters and a generation were stored, and
--                             no item
-- Errors     WRONGTYPE, OOM, READONLY, all of them before anything is changed

local lane_key, config_key, layout_key, FIRST_KEY, FIRST_SWEPT = KEYS[1], KEYS[2], KEYS[3], 4, 10
local number, config, agreed, generation = tonumber(ARGV[1]), ARGV[2], ARGV[3] == '1', ARGV[4]
local ttl, lane_ttl, items = tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[9]

local refused = refusal(config_key, layout_key, config, agreed, generation, lane_key, number)
if refused then return refused end

-- Parameters and layout must outlive the items. They get twice the time, so that this write is rare; and that of a lane,
-- so that they are there when a client has learnt of them.
local life = math.max(2 * ttl, lane_ttl)
local function keep_parameters()
  if ends_before(config_key, ttl) then redis.call('SET', config_key, config, 'PX', life) end
end

if generation == '' then
  keep_parameters()
  generation = new_generation()
  redis.call('SET', layout_key, generation, 'PX', life)
  return {5, generation}
end

local directory = directory_of(layout_key, FIRST_KEY)
directory.size, directory.most, directory.last = 'ZCARD', tonumber(ARGV[7]), tonumber(ARGV[8])

-- (1) Seen items get their answer also on a server that refuses writes.
local now = server_time()
local entry_now = since(generation, now)
local answers, missing = {}, {}
for item = 0, #items / 20 - 1 do
  local at = place(directory, items, item)
  local expires = at and redis.call('ZSCORE', KEYS[at], fingerprint_at(items, item))
  if not at then
    answers[item + 1] = '2'
  elseif expires and tonumber(expires) > entry_now then
    answers[item + 1] = '0'
  else
    missing[#missing + 1] = item
  end
end

-- (2) Out of memory, and on a replica, the server refuses the first write, so that one changes nothing.
if #missing > 0 then redis.call('SETRANGE', layout_key, 0, '') end
local new = 0
for _, item in ipairs(missing) do
  local at, bucket = place(directory, items, item) -- a split may have moved it
  if at then redis.call('ZREMRANGEBYSCORE', KEYS[at], '-inf', entry_now) end
  if has_room(directory, at) then
    redis.call('ZADD', KEYS[at], entry_now + ttl, fingerprint_at(items, item))
    answers[item + 1], new = '1', new + 1
    keep_bucket(KEYS[at], now + ttl, now)
    split_if_due(directory, at, bucket)
  else
    answers[item + 1] = '2'
  end
end
answers = table.concat(answers)

-- (3) The sweep changes no answer, so it needs no token.
local dead, left = 0, 0
for i = FIRST_SWEPT, #ARGV do
  local key, bucket = KEYS[#KEYS - #ARGV + i], tonumber(ARGV[i])
  local swept = redis.pcall('ZREMRANGEBYSCORE', key, '-inf', entry_now)
  if type(swept) == 'number' then dead, left = dead + swept, left + redis.call('ZCARD', key) end
  if is_split(directory, bucket) then table.insert(directory.splits, bucket) end
end

-- Without a new item the answer is not kept, because a resent call finds the same. (Unless an item has expired by then:
-- see docs/guarantees.md.) Once its items have expired, an answer says nothing of those that others add.
if new == 0 then return {0, answers, directory.splits, dead, left} end

keep_parameters()
if ends_before(layout_key, ttl) then redis.call('PEXPIRE', layout_key, life) end
redis.call('SET', lane_key, lane_entry(ARGV[1], answers, generation), 'PX', math.min(lane_ttl, ttl))
return {0, answers, directory.splits, dead, left}

-- add: which of these items are new? Remembers the new ones for the given time.
--
-- The items are spread over buckets: small sorted sets, fingerprint -> time at which it expires. A bucket that gets too
-- large is split into two halves; the layout has a bit for each bucket that has been split (extendible hashing: R. Fagin
-- et al., 1979). The script checks the token, the parameters and the generation. Then it (1) looks up all items, (2) adds
-- those that are missing, and (3) sweeps dead entries out of some more buckets.
--
-- Includes   buckets, clock, generations, parameters, tokens
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
--            {2, parameters}  the filter is stored with other parameters; nothing changed
--            {3, number}      the lane has had a later call, so this is a stray copy of an answered one; nothing changed
--            {4, ''}          no parameters are stored here, and the client has not compared its own; nothing changed
--            {5, generation}  another generation is stored; nothing changed. With '' in ARGV[4], and none stored: the
--                             parameters and a generation were stored, and no item
-- Errors     WRONGTYPE, OOM, READONLY, all of them before anything is changed

local lane_key, config_key, layout_key, FIRST_KEY, FIRST_SWEPT = KEYS[1], KEYS[2], KEYS[3], 4, 10
local number, config, agreed, generation = tonumber(ARGV[1]), ARGV[2], ARGV[3] == '1', ARGV[4]
local ttl, lane_ttl, most_entries, last_bucket = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
local items, asked = ARGV[9], #ARGV[9] / 20

-- The token comes first: a resent call gets its first answer, even if something has changed since, unless the filter was
-- cleared.
local stored_generation = generation_of(layout_key)
local answered, last = earlier_answer(lane_key, number, stored_generation)
if answered then return {0, answered, {}, 0, 0} end
if last then return {3, last} end

-- Parameters and layout must outlive the items. They get twice the time, so that this write is rare; and that of a lane,
-- so that they are there when a client has learnt of them.
local life = math.max(2 * ttl, lane_ttl)
local function keep_parameters()
  if ends_before(config_key, ttl) then redis.call('SET', config_key, config, 'PX', life) end
end

local refusal = disagreement(config_key, config, agreed)
if refusal then return refusal end
if stored_generation ~= generation then return {5, stored_generation} end
if generation == '' then
  keep_parameters()
  generation = new_generation()
  redis.call('SET', layout_key, generation, 'PX', life)
  return {5, generation}
end

local splits, first_keys = {}, {next = FIRST_KEY}
local function place_of(item)
  return place(layout_key, first_keys, half_at(items, item), splits)
end

-- (1) Seen items get their answer also on a server that refuses writes.
local now = server_time()
local entry_now = since(generation, now)
local answers, missing, places, buckets = {}, {}, {}, {}
for item = 0, asked - 1 do
  local at, bucket = place_of(item)
  local expires = at and redis.call('ZSCORE', KEYS[at], fingerprint_at(items, item))
  if not at then
    answers[item + 1] = '2'
  elseif expires and tonumber(expires) > entry_now then
    answers[item + 1] = '0'
  else
    missing[#missing + 1], places[item], buckets[item] = item, at, bucket
  end
end

-- (2) Out of memory, and on a replica, the server refuses the first write, so that one changes nothing.
if #missing > 0 then redis.call('SETRANGE', layout_key, 0, '') end
local new, has_split = 0, false
for _, item in ipairs(missing) do
  local at, bucket = places[item], buckets[item]
  if has_split then at, bucket = place_of(item) end -- it may have moved
  -- KEYS has no halves of a half, so it can't be split now. It may grow to 1.5 times the limit, which is still compact (a
  -- listpack of at most 128 entries); beyond that the client must call again with the half's own halves.
  local has_halves = at and (at - FIRST_KEY) % 3 == 0
  if at then redis.call('ZREMRANGEBYSCORE', KEYS[at], '-inf', entry_now) end
  if not at or not has_halves and redis.call('ZCARD', KEYS[at]) >= 1.5 * most_entries then
    answers[item + 1] = '2'
  else
    redis.call('ZADD', KEYS[at], entry_now + ttl, fingerprint_at(items, item))
    answers[item + 1], new = '1', new + 1
    local entries = redis.call('ZCARD', KEYS[at])
    keep_bucket(KEYS[at], entries, now + ttl, now)
    if has_halves and bucket < last_bucket and entries > most_entries then
      has_split = split(layout_key, at, bucket, splits) or has_split
    end
  end
end
answers = table.concat(answers)

-- (3) The sweep changes no answer, so it needs no token.
local dead, left = 0, 0
for i = FIRST_SWEPT, #ARGV do
  local key, bucket = KEYS[#KEYS - #ARGV + i], tonumber(ARGV[i])
  local swept = redis.pcall('ZREMRANGEBYSCORE', key, '-inf', entry_now)
  if type(swept) == 'number' then dead, left = dead + swept, left + redis.call('ZCARD', key) end
  if is_split(layout_key, bucket) then splits[#splits + 1] = bucket end
end

-- Without a new item the answer is not kept, because a resent call finds the same. (Unless an item has expired by then:
-- see docs/guarantees.md.) Once its items have expired, an answer says nothing of those that others add.
if new == 0 then return {0, answers, splits, dead, left} end

keep_parameters()
if ends_before(layout_key, ttl) then redis.call('PEXPIRE', layout_key, life) end
redis.call('SET', lane_key, lane_entry(ARGV[1], answers, generation), 'PX', math.min(lane_ttl, ttl))
return {0, answers, splits, dead, left}

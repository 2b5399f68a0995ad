-- exact_add: which of these items are new? Those that are, are remembered for as long as the caller says.
--
-- An exact filter's items are spread over buckets: small sorted sets, fingerprint -> when it expires. A bucket that
-- gets too large is split into two halves; the layout has a bit for each bucket that was (extendible hashing:
-- R. Fagin et al., 1979). After the token, the parameters and the layout's generation, (1) all items are looked up,
-- (2) those that are missing are added, and (3) the dead are swept out of some more buckets.
--
-- KEYS[1]    the caller's lane: the token and the answer of its last call that changed something
-- KEYS[2]    the filter's parameters
-- KEYS[3]    the layout: the generation, 16 digits; then the bits, one for each bucket, from number 0 on
-- KEYS[4..]  for each item, the bucket that the caller knows, and that one's two halves; then buckets to be swept
--
-- ARGV[1]    this call's number in its lane; with the lane's name, its token
-- ARGV[2]    the parameters that the caller works with
-- ARGV[3]    1: the parameters may be stored where there are none; 0: they must be agreed on first (exact_open.lua)
-- ARGV[4]    the generation that the caller knows, or proposes: when it begins (us)
-- ARGV[5]    for how long the items are remembered (ms)
-- ARGV[6]    how long a lane is kept at most (ms)
-- ARGV[7]    with more entries than this, a bucket is split
-- ARGV[8]    up to which number buckets are split
-- ARGV[9]    1: the generation is a new one, for where there is none
-- ARGV[10]   how many items there are
-- ARGV[11..]  for each item, the number of the half that it belongs to, and its fingerprint, 16 bytes; then the
--            numbers of the buckets to be swept
--
-- Reply      {0, answers, splits, dead, left}  a character per item: 0 seen, 1 new; 2 not added: the half that it belongs
--                             to has been split too, or must be: read the layout and ask again. Of the buckets that
--                             the caller knows, the numbers of those that have been split. How many dead entries were
--                             swept out of the extra buckets, and how many entries are left in those
--            {2, parameters}  the filter is stored with others; nothing changed
--            {3, number}      the lane is further on: this is a stray copy of an answered call; nothing changed
--            {4, ''}          no parameters are stored here, and the caller has not agreed on them; nothing changed
--            {5, generation}  the generation is another one; nothing changed
-- Errors     WRONGTYPE, OOM, READONLY, all of them before anything is changed

local lane_key, config_key, layout_key, FIRST_KEY, FIRST_ITEM = KEYS[1], KEYS[2], KEYS[3], 4, 11
local number, config, agreed, generation = tonumber(ARGV[1]), ARGV[2], ARGV[3] == '1', ARGV[4]
local ttl, lane_ttl, most_entries, last_bucket = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
local is_new, items = ARGV[9] == '1', tonumber(ARGV[10])

-- The token comes first: a call that is sent again gets its first answer, whatever has changed since.
local answered, last = told_before(lane_key, number)
if answered then return {0, answered, {}, 0, 0} end
if last then return {3, last} end

local refusal = other_parameters(config_key, config, agreed)
if refusal then return refusal end
local stored_generation = generation_of(layout_key)
if stored_generation ~= generation and not (is_new and stored_generation == '') then return {5, stored_generation} end

local splits = {}
local function place_of(item)
  return place(layout_key, FIRST_KEY + 3 * item, tonumber(ARGV[FIRST_ITEM + 2 * item]), splits)
end
local function fingerprint_of(item)
  return ARGV[FIRST_ITEM + 2 * item + 1]
end

-- (1) What is seen can be told also where nothing can be written.
local now = server_time()
local entry_now = since(generation, now)
local answers, missing, places, buckets = {}, {}, {}, {}
for item = 0, items - 1 do
  local at, bucket = place_of(item)
  local expires = at and redis.call('ZSCORE', KEYS[at], fingerprint_of(item))
  if not at then
    answers[item + 1] = '2'
  elseif expires and tonumber(expires) > entry_now then
    answers[item + 1] = '0'
  else
    missing[#missing + 1], places[item], buckets[item] = item, at, bucket
  end
end

-- (2) Without memory, and on a replica, the first write is refused, so that is one that changes nothing.
if #missing > 0 then redis.call('SETRANGE', layout_key, 0, '') end
local new, has_split = 0, false
for _, item in ipairs(missing) do
  local at, bucket = places[item], buckets[item]
  if has_split then at, bucket = place_of(item) end -- it may have moved
  -- Of a half the caller has no halves, so it can't be split now. It may grow to 1.5 times the size, which is still
  -- compact (a listpack of 128 entries at most); for more, the caller comes again with its halves.
  local has_halves = at == FIRST_KEY + 3 * item
  if at then redis.call('ZREMRANGEBYSCORE', KEYS[at], '-inf', entry_now) end
  if not at or not has_halves and redis.call('ZCARD', KEYS[at]) >= 1.5 * most_entries then
    answers[item + 1] = '2'
  else
    redis.call('ZADD', KEYS[at], entry_now + ttl, fingerprint_of(item))
    answers[item + 1], new = '1', new + 1
    local entries = redis.call('ZCARD', KEYS[at])
    keep_bucket(KEYS[at], entries, now + ttl, now)
    if has_halves and bucket < last_bucket and entries > most_entries then
      has_split = split(layout_key, at, bucket, splits) or has_split
    end
  end
end
answers = table.concat(answers)

-- (3) Also where nothing is new: this changes no answer.
local dead, left = 0, 0
local first_swept_key, first_swept = FIRST_KEY + 3 * items, FIRST_ITEM + 2 * items
for i = 0, #KEYS - first_swept_key do
  local key, bucket = KEYS[first_swept_key + i], tonumber(ARGV[first_swept + i])
  local swept = redis.pcall('ZREMRANGEBYSCORE', key, '-inf', entry_now)
  if type(swept) == 'number' then dead, left = dead + swept, left + redis.call('ZCARD', key) end
  if is_split(layout_key, bucket) then splits[#splits + 1] = bucket end
end

-- Without a new item no token is noted: sent again, the call would find the same. (Unless it comes so late that an
-- item has expired meanwhile. See docs/guarantees.md.)
if new == 0 then return {0, answers, splits, dead, left} end

-- Parameters and layout outlive the items; for twice as long as they must, so that this is seldom done.
if ends_before(config_key, ttl) then redis.call('SET', config_key, config, 'PX', 2 * ttl) end
if stored_generation == '' then redis.call('SETRANGE', layout_key, 0, generation) end
if stored_generation == '' or ends_before(layout_key, ttl) then redis.call('PEXPIRE', layout_key, 2 * ttl) end
redis.call('SET', lane_key, ARGV[1] .. ':' .. answers, 'PX', lane_ttl)
return {0, answers, splits, dead, left}

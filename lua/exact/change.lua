-- change: add items to an exact filter for a given time, discard them, or answer which are remembered, and until when.
--
-- The items are spread over buckets. A bucket is a small sorted set: fingerprint -> the time at which the item expires. A bucket
-- that gets too large is split into two halves. The layout has a bit for each bucket that has been split (extendible hashing: R.
-- Fagin et al., 1979). The script first checks the token, the parameters and the generation. Then it (1) looks up all items. A
-- discard (2) removes them. An add (3) adds the missing items, and (4) removes expired entries from some more buckets.
--
-- Includes   buckets, clock, generations, lane_entries, lanes, parameters
--
-- KEYS[1]    the filter's parameters
-- KEYS[2]    the layout: the generation, 16 digits, then a bit for each bucket from number 0 on
-- KEYS[3]    the client's lane (shared/lanes.lua); any key for a look-up, which has no token
-- KEYS[4..]  the items' buckets, as far as the client knows, each followed by its two halves (`place` in shared/buckets.lua);
--            then the buckets to sweep
--
-- ARGV[1]    'add', 'discard', 'contains' or 'expires'
-- ARGV[2]    the token (shared/lanes.lua); '' for a look-up
-- ARGV[3]    the client's parameters
-- ARGV[4]    1: the client has compared its parameters at the root, so an add may store them here; 0: they must be stored here
-- ARGV[5]    the generation that the client knows; '' for none
-- ARGV[6]    the longest time for which the lane is kept (ms)
-- ARGV[7]    the items (`half_at` in shared/buckets.lua)
-- ARGV[8]    how long the items are remembered (ms). ARGV[8..] are for 'add' only
-- ARGV[9]    the limit of entries in a bucket. A bucket with more is split
-- ARGV[10]   the number of the last bucket that may be split
-- ARGV[11..]  the numbers of the buckets to sweep
--
-- Reply      {0, answers, splits, times}  to 'discard', 'contains' and 'expires'. answers: a character per item: 1 it was
--                             remembered; 0 it was not, or had expired; 2 it is in another bucket, so the client must read
--                             the layout and send it again. splits: the client's buckets that have been split. times, for
--                             'expires': when each remembered item expires (ms)
--            {0, answers, splits, dead, left}  to 'add'. answers: 1 new; 0 seen; 2 not added, because its half has been
--                             split, or must be. dead: the number of entries that were swept out of the last buckets in
--                             KEYS. left: the number of entries that remain in them
--            {0, answers, {}}  the call was executed before: its first answers
--            {2, parameters}  the filter is stored with other parameters; nothing changed
--            {3, number}      the lane has had a later call: this is a stray copy of an answered call; nothing changed
--            {4, ''}          no parameters are stored here, and the client has not compared its own
--            {5, generation}  the stored generation is not the client's. If none was stored, an add has stored a new one and
--                             the parameters, but no item
-- Errors     WRONGTYPE, OOM (not to 'discard'), READONLY, each before anything is changed

local config_key, layout_key, lane_key, FIRST_KEY, FIRST_SWEPT = KEYS[1], KEYS[2], KEYS[3], 4, 11
local verb, number, config, agreed, generation = ARGV[1], read_token(ARGV[2]), ARGV[3], ARGV[4] == '1', ARGV[5]
local lane_ttl, items, ttl = tonumber(ARGV[6]), ARGV[7], tonumber(ARGV[8])
local is_added, is_discarded = verb == 'add', verb == 'discard'

-- The token is checked first: a resent call gets its first answer, even if something has changed since, unless the filter was
-- cleared.
local stored = generation_of(layout_key)
if is_added or is_discarded then
  local answered, last = answers_in(redis.call('GET', lane_key), number, stored)
  if answered then return {0, answered, {}} end
  if last then return {3, last} end
end
local refused = disagreement(config_key, config, agreed) or stored ~= generation and {5, stored}
if refused then return refused end
if generation == '' and not is_added then return {0, string.rep('0', #items / 20), {}, {}} end

-- Parameters and layout must outlive the items. They get twice the items' time, so that this write is rare. They get at least a
-- lane's time, so that they still exist when a client that has learnt of them makes its next call.
local life = is_added and math.max(2 * ttl, lane_ttl)
local function keep_parameters()
  if ends_before(config_key, ttl) then redis.call('SET', config_key, config, 'PX', life) end
end

if generation == '' then
  keep_parameters()
  generation = new_generation()
  redis.call('SET', layout_key, generation, 'PX', life)
  return {5, generation}
end

-- (1) No write comes before this point, so that seen items get their answer even from a server that refuses writes.
local directory, now = directory_of(layout_key, FIRST_KEY), server_time()
local entry_now = since(generation, now)
local answers, times, found, missing = {}, {}, {}, {}
for item = 0, #items / 20 - 1 do
  local at = place(directory, items, item)
  local expires = at and redis.call('ZSCORE', KEYS[at], fingerprint_at(items, item))
  local is_remembered = expires and tonumber(expires) > entry_now
  answers[item + 1] = not at and '2' or is_remembered ~= is_added and '1' or '0'
  if is_remembered and verb == 'expires' then times[#times + 1] = now - entry_now + expires end
  if is_discarded and expires then found[item] = KEYS[at] end
  if is_added and at and not is_remembered then missing[#missing + 1] = item end
end
if not is_added and not is_discarded then return {0, table.concat(answers), directory.splits, times} end

-- (2) The lane is deleted first, which a replica refuses. A server whose memory is full does not, and then takes the other writes,
-- too. The answer is kept even if nothing was found, because an item may be added before a late copy of this call arrives.
if is_discarded then
  answers = table.concat(answers)
  redis.call('UNLINK', lane_key)
  redis.call('SET', lane_key, lane_entry(number, answers, now, generation), 'PX', lane_ttl)
  for item, key in pairs(found) do redis.call('ZREM', key, fingerprint_at(items, item)) end
  return {0, answers, directory.splits, times}
end

-- (3) The first write changes nothing, because a replica, or a server that is out of memory, refuses it.
directory.size, directory.most, directory.last = 'ZCARD', tonumber(ARGV[9]), tonumber(ARGV[10])
if #missing > 0 then redis.call('SETRANGE', layout_key, 0, '') end
local new = 0
for _, item in ipairs(missing) do
  local at, bucket = place(directory, items, item) -- a split may have moved it
  if at then redis.call('ZREMRANGEBYSCORE', KEYS[at], '-inf', entry_now) end
  if has_room(directory, at) then
    redis.call('ZADD', KEYS[at], entry_now + ttl, fingerprint_at(items, item))
    new = new + 1
    keep_bucket(KEYS[at], entry_now + ttl, now - entry_now, now)
    split_if_due(directory, at, bucket)
  else
    answers[item + 1] = '2'
  end
end
answers = table.concat(answers)

-- (4) The sweep changes no answer, so it needs no token.
local dead, left = 0, 0
for i = FIRST_SWEPT, #ARGV do
  local key, bucket = KEYS[#KEYS - #ARGV + i], tonumber(ARGV[i])
  local swept = redis.pcall('ZREMRANGEBYSCORE', key, '-inf', entry_now)
  if type(swept) == 'number' then dead, left = dead + swept, left + redis.call('ZCARD', key) end
  if is_split(directory, bucket) then table.insert(directory.splits, bucket) end
end

-- Without a new item, the answers are not kept, because a resent call finds the same answers. (docs/guarantees.md has the
-- exception: an item that has expired by then.) The lane is not kept longer than the items: after that, its answers would be
-- wrong for items that other clients add.
if new == 0 then return {0, answers, directory.splits, dead, left} end

keep_parameters()
if ends_before(layout_key, ttl) then redis.call('PEXPIRE', layout_key, life) end
redis.call('SET', lane_key, lane_entry(number, answers, now, generation), 'PX', math.min(lane_ttl, ttl))
return {0, answers, directory.splits, dead, left}

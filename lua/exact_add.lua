-- exact_add: which of these items are new? Those that are, are remembered for as long as the caller says.
--
-- An exact filter's items are spread over buckets: small sorted sets, fingerprint -> when it expires. Each call first
-- sweeps the dead out of the buckets that it needs, and out of some more. A bucket that gets too large is split in
-- two; the layout has a bit for each bucket that was (extendible hashing: R. Fagin et al., 1979).
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
-- ARGV[7]    how many items a bucket may hold, before it is split
-- ARGV[8]    1: the generation is a new one, for where there is none
-- ARGV[9]    how many items there are
-- ARGV[10..]  for each item, the number of the half that it belongs to, and its fingerprint, 16 bytes
--
-- Reply      {0, answers, dead}  a character per item: 0 seen, 1 new; 3 seen and 4 new, and the bucket that the caller knows
--                             has been split; 2 so has its half: nothing was done, read the layout and ask again. And
--                             how many dead entries were swept out of the extra buckets
--            {2, parameters}  the filter is stored with others; nothing changed
--            {3, number}      the lane is further on: this is a stray copy of an answered call; nothing changed
--            {4, ''}          no parameters are stored here, and the caller has not agreed on them; nothing changed
--            {5, generation}  the generation is another one; nothing changed
-- Errors     WRONGTYPE, OOM, READONLY, all of them before anything is changed

local lane_key, config_key, layout_key, FIRST_KEY, FIRST_ITEM = KEYS[1], KEYS[2], KEYS[3], 4, 10
local number, config, agreed, generation = tonumber(ARGV[1]), ARGV[2], ARGV[3] == '1', ARGV[4]
local ttl, lane_ttl, most = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local is_new, items, DEEPEST = ARGV[8] == '1', tonumber(ARGV[9]), 2 ^ 26

-- The token comes first: a call that is sent again gets its first answer, whatever has changed since.
local answered, last = told_before(lane_key, number)
if answered then return {0, answered, 0} end
if last then return {3, last} end

local refusal, stored = exact_disagreement(config_key, config, agreed)
if refusal then return refusal end
local stored_generation = generation_of(layout_key)
if stored_generation ~= generation and not (is_new and stored_generation == '') then return {5, stored_generation} end

local function find(item)
  return place(layout_key, FIRST_KEY + 3 * item, tonumber(ARGV[FIRST_ITEM + 2 * item]))
end

-- First the dead go; that also finds out whether there are only buckets here.
local now = server_time()
local local_now = since(generation, now)
local found, buckets = {}, {}
for i = 0, items - 1 do
  local at, bucket = find(i)
  found[i], buckets[i] = at, bucket
  if at then redis.call('ZREMRANGEBYSCORE', KEYS[at], '-inf', local_now) end
end
local dead = 0
for i = FIRST_KEY + 3 * items, #KEYS do
  dead = dead + (tonumber(redis.pcall('ZREMRANGEBYSCORE', KEYS[i], '-inf', local_now)) or 0)
end

local answers, new, has_split = {}, 0, false
for i = 0, items - 1 do
  local at, bucket = found[i], buckets[i]
  if has_split then at, bucket = find(i) end
  local is_known, fingerprint = at == FIRST_KEY + 3 * i, ARGV[FIRST_ITEM + 2 * i + 1]
  if not at then
    answers[i + 1] = '2'
  elseif redis.call('ZADD', KEYS[at], 'NX', local_now + ttl, fingerprint) == 0 then
    answers[i + 1] = is_known and '0' or '3'
  else
    answers[i + 1], new = is_known and '1' or '4', new + 1
    prolong(KEYS[at], now + ttl, now)
    -- Of a half, the caller has no halves.
    if is_known and bucket < DEEPEST and redis.call('ZCARD', KEYS[at]) > most then
      has_split = split(layout_key, at, bucket) or has_split
    end
  end
end
answers = table.concat(answers)

-- Without a new item nothing is changed, so sending the call again is safe as it is.
if new == 0 then return {0, answers, dead} end

-- Parameters and layout outlive the items; for twice as long as they must, so that this is seldom done.
if not stored or stored_generation == '' or redis.call('PTTL', config_key) < ttl then
  redis.call('SET', config_key, config, 'PX', 2 * ttl)
  redis.call('SETRANGE', layout_key, 0, generation)
  redis.call('PEXPIRE', layout_key, 2 * ttl)
end
redis.call('SET', lane_key, ARGV[1] .. ':' .. answers, 'PX', math.min(lane_ttl, ttl))
return {0, answers, dead}

-- add: which of these members are counted for the first time? All of them are counted from now on.
--
-- A mapping gives each member a number, its id, for all counters: 0, 1, 2, ... The mapping is spread over buckets: small
-- hashes (fingerprint -> id), split like an exact filter's (lua/exact/add.lua). A counter is a set of ids in chunks of
-- 65,536, as in Roaring bitmaps (S. Chambi et al., "Better bitmap performance with Roaring bitmaps", 2016). Its directory
-- has a field for each chunk that is not empty. Up to 4,096 ids: ':' and the sorted ids, two bytes each. More: their
-- number, and a bitmap of 8 KB in a key of its own. Two more fields: 'n', the number of all ids, and 'of', the generation
-- of the mapping that gave them.
--
-- KEYS[1]    the client's lane: the number and the answer of its last call that changed something
-- KEYS[2]    the mapping's parameters
-- KEYS[3]    the mapping's layout: the generation, 16 digits; then a bit for each bucket, from number 0 on
-- KEYS[4]    the number of ids that the mapping has given
-- KEYS[5]    the parameters of the mapping's counters, by name
-- KEYS[6]    the directory of the counter's current slice
-- KEYS[7..]  the members' buckets, as the client knows them, each followed by its halves (place in
--            shared/buckets.lua); then the bitmaps of some chunks
--
-- ARGV[1]    this call's number in the lane; with the lane's name, its token
-- ARGV[2]    the mapping's parameters, as the client knows them
-- ARGV[3]    the counter's name
-- ARGV[4]    the counter's parameters, as the client knows them
-- ARGV[5]    the generation that the client knows or proposes
-- ARGV[6]    1: the generation is a proposal, for the case that none is stored
-- ARGV[7]    when the current slice begins, as the client believes (ms)
-- ARGV[8]    when it ends (ms)
-- ARGV[9]    when it leaves the window (ms); 0: never
-- ARGV[10]   how long a lane's answer is kept at most (ms)
-- ARGV[11]   the limit of entries in a bucket; with more it is split
-- ARGV[12]   the number of the last bucket that may be split
-- ARGV[13]   the number of ids that the mapping may give
-- ARGV[14]   the members (half_at in shared/buckets.lua)
-- ARGV[15..]  the numbers of the chunks whose bitmaps are in KEYS
--
-- Reply      {0, answers, splits, members, chunks}  answers: a character per member: 0 counted before; 1 counted now;
--                             2 not counted: the half that it belongs to has been split, or must be (read the layout
--                             and send it again), or its bitmap is missing in KEYS. splits: those of the client's
--                             buckets that have been split. members: the number of ids that the mapping has given.
--                             chunks: those whose bitmaps are missing
--            {1, now}         the server's clock (ms) is not within ARGV[7..8]; nothing changed
--            {2, parameters}  the mapping is stored with other parameters; nothing changed
--            {2, parameters, 1}  the counter is stored with other parameters; nothing changed
--            {3, number}      the lane has had a later call, so this is a stray copy of an answered one; nothing changed
--            {5, generation}  another generation is stored; nothing changed
--            {6, answers, splits, members, chunks}  the same, and the mapping is full: those with 2 that have no id
--                             get none
--            {7, generation}  the counter has ids of this generation, which is not the mapping's; nothing changed
--            {8, key}         the key's value is not tbloom's, or missing where there must be one; nothing changed
-- Errors     WRONGTYPE, OOM, READONLY, all of them before anything is changed

local lane_key, mapping_key, layout_key, members_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local counters_key, directory, FIRST_KEY, FIRST_CHUNK = KEYS[5], KEYS[6], 7, 15
local number, mapping, counter, parameters = tonumber(ARGV[1]), ARGV[2], ARGV[3], ARGV[4]
local generation, is_new = ARGV[5], ARGV[6] == '1'
local begins, ends, expires = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])
local lane_ttl, most_entries, last_bucket = tonumber(ARGV[10]), tonumber(ARGV[11]), tonumber(ARGV[12])
local max_members, items, asked = tonumber(ARGV[13]), ARGV[14], #ARGV[14] / 20
local CHUNK, MOST_SORTED = 65536, 4096

-- The token comes first: a resent call gets its first answer, even if something has changed since.
local answered, last = earlier_answer(lane_key, number)
if answered then return {0, answered, {}, 0, {}} end
if last then return {3, last} end

local now = server_time()
if now < begins or now >= ends then return {1, now} end
local refusal, stored_mapping = disagreement(mapping_key, mapping, true)
if refusal then return refusal end
local stored = redis.call('HGET', counters_key, counter)
if stored and stored ~= parameters then return {2, stored, 1} end
local stored_generation = generation_of(layout_key)
if stored_generation ~= generation and not (is_new and stored_generation == '') then return {5, stored_generation} end
local members, of, n = redis.call('GET', members_key), unpack(redis.call('HMGET', directory, 'of', 'n'))
if of and of ~= generation then return {7, of} end
if not is_number(members or (stored_generation == '' and '0' or '')) then return {8, members_key} end
-- The directory of a slice may have expired; a stored counter without slices has its directory.
local must_exist = of or stored and expires == 0
if (must_exist or n) and not is_number(n or '') then return {8, directory} end
members = tonumber(members or 0)

local splits, first_keys = {}, {next = FIRST_KEY}
local function place_of(member)
  return place(layout_key, first_keys, half_at(items, member), splits)
end

local bitmap_keys = {}
for i = FIRST_CHUNK, #ARGV do bitmap_keys[tonumber(ARGV[i])] = KEYS[#KEYS - #ARGV + i] end

-- The chunk of an id: its number, its bitmap's key if that is in KEYS, the number of its ids, the ids if they are sorted,
-- and the ids to add.
local chunks, missing_bitmaps, damaged = {}, {}, nil
local function chunk_of(id)
  local at = math.floor(id / CHUNK)
  if chunks[at] then return chunks[at] end
  local entry, key = redis.call('HGET', directory, at) or ':', bitmap_keys[at]
  local size, is_sorted = size_of(entry)
  if not size then
    damaged = directory
  elseif key and (not is_sorted or size + asked > MOST_SORTED) then
    redis.call('GETBIT', key, 0) -- WRONGTYPE: another program's
    if not is_sorted and redis.call('EXISTS', key) == 0 then damaged = key end
  end
  chunks[at] = {at = at, key = key, n = size or 0, sorted = is_sorted and entry, added = {}}
  return chunks[at]
end

-- Whether the chunk can take one more id with these KEYS.
local function can_take(chunk)
  if chunk.key or chunk.sorted and chunk.n + #chunk.added < MOST_SORTED then return true end
  if not chunk.is_missing then
    chunk.is_missing, missing_bitmaps[#missing_bitmaps + 1] = true, chunk.at
  end
end

-- (1) Counted members get their answer also on a server that refuses writes.
local answers, unknown, places, buckets, changes = {}, {}, {}, {}, false
for member = 0, asked - 1 do
  local at, bucket = place_of(member)
  local known = at and redis.call('HGET', KEYS[at], fingerprint_at(items, member))
  local id = known and tonumber(known)
  if known and not (id and id >= 0 and id < members and id % 1 == 0) then
    return {8, KEYS[at]}
  elseif id then
    local chunk, low = chunk_of(id), id % CHUNK
    local is_counted
    if chunk.sorted then
      is_counted = select(2, position_of(chunk.sorted, low))
    else
      is_counted = chunk.key and redis.call('GETBIT', chunk.key, low) == 1
    end
    if is_counted then
      answers[member + 1] = '0'
    elseif can_take(chunk) then
      chunk.added[#chunk.added + 1], changes = low, true
      answers[member + 1] = '1'
    else
      answers[member + 1] = '2'
    end
  elseif at then
    unknown[#unknown + 1], places[member], buckets[member] = member, at, bucket
  else
    answers[member + 1] = '2'
  end
end
if #unknown > 0 then chunk_of(members) chunk_of(members + #unknown - 1) end
if damaged then return {8, damaged} end

-- (2) Out of memory, and on a replica, the server refuses the first write, so that one changes nothing.
if changes or #unknown > 0 then redis.call('SETRANGE', layout_key, 0, '') end
local given, has_split, is_full = 0, false, false
for _, member in ipairs(unknown) do
  local at, bucket = places[member], buckets[member]
  if has_split then at, bucket = place_of(member) end -- it may have moved
  local id = members + given
  local chunk = chunk_of(id)
  -- KEYS has no halves of a half, so it can't be split now; it may grow to 1.5 times the limit.
  local has_halves = at and (at - FIRST_KEY) % 3 == 0
  is_full = id >= max_members
  if is_full or not at or not has_halves and redis.call('HLEN', KEYS[at]) >= 1.5 * most_entries
      or not can_take(chunk) then
    answers[member + 1] = '2'
  else
    redis.call('HSET', KEYS[at], fingerprint_at(items, member), id)
    chunk.added[#chunk.added + 1], changes = id % CHUNK, true
    answers[member + 1], given = '1', given + 1
    if has_halves and bucket < last_bucket and redis.call('HLEN', KEYS[at]) > most_entries then
      has_split = split(layout_key, at, bucket, splits, true) or has_split
    end
  end
end
answers = table.concat(answers)

-- Without a change the answer is not kept, because a resent call finds the same.
local status = is_full and 6 or 0
if not changes then return {status, answers, splits, members, missing_bitmaps} end

-- (3) The ids go into their chunks.
local new = 0
for _, chunk in pairs(chunks) do
  local added = chunk.added
  new = new + #added
  if #added == 0 then
    -- Nothing new.
  elseif not chunk.sorted then
    for _, low in ipairs(added) do redis.call('SETBIT', chunk.key, low, 1) end
    redis.call('HINCRBY', directory, chunk.at, #added)
  elseif chunk.n + #added <= MOST_SORTED then
    table.sort(added)
    local pieces, from = {}, 1
    for _, low in ipairs(added) do
      local to = 1 + 2 * (position_of(chunk.sorted, low))
      pieces[#pieces + 1] = string.sub(chunk.sorted, from, to)
      pieces[#pieces + 1] = string.char(math.floor(low / 256), low % 256)
      from = to + 1
    end
    pieces[#pieces + 1] = string.sub(chunk.sorted, from)
    redis.call('HSET', directory, chunk.at, table.concat(pieces))
  else
    redis.call('UNLINK', chunk.key)
    append_ids(chunk.sorted, added)
    set_bits(chunk.key, added)
    if expires > 0 then redis.call('PEXPIREAT', chunk.key, expires) end
    redis.call('HSET', directory, chunk.at, #added)
  end
end
redis.call('HINCRBY', directory, 'n', new)
if not of then
  redis.call('HSET', directory, 'of', generation)
  if expires > 0 then redis.call('PEXPIREAT', directory, expires) end
end

if not stored_mapping then redis.call('SET', mapping_key, mapping) end
redis.call('SET', members_key, string.format('%.0f', members + given))
if stored_generation == '' then redis.call('SETRANGE', layout_key, 0, generation) end
if not stored then redis.call('HSET', counters_key, counter, parameters) end
redis.call('SET', lane_key, ARGV[1] .. ':' .. answers, 'PX', lane_ttl)
return {status, answers, splits, members + given, missing_bitmaps}

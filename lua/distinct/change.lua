-- change: add members to a counter, discard them, answer whether they are counted, or merge whole containers.
--
-- A mapping gives each member a number, its id (0, 1, 2, ...), which is the same for all counters. The mapping is spread over
-- buckets: small hashes (fingerprint -> id, or id:member), which are split like an exact filter's (lua/exact/change.lua). Without
-- a mapping, the client gives the ids. A counter is a set of ids for each slice (shared/counters.lua).
--
-- Includes   buckets, clock, containers, counters, lane_entries, lanes, parameters
--
-- KEYS[1]    the client's lane (shared/lanes.lua)
-- KEYS[2]    the mapping's parameters
-- KEYS[3]    the mapping's layout: the generation, 16 digits, then a bit for each bucket from number 0 on
-- KEYS[4]    the number of ids that the mapping has given
-- KEYS[5]    the entries of the mapping's counters, by name
-- KEYS[6..]  the pieces of the counter's slices, slice by slice: of the current slice for 'add' and 'merge', otherwise of all live
--            slices. Then the members' buckets, as far as the client knows, each followed by its two halves (`place` in
--            shared/buckets.lua). For 'merge', a temporary key follows instead, which exists only while the script runs
--
-- ARGV[1]    the token (shared/lanes.lua)
-- ARGV[2]    'add', 'discard', 'contains' or 'merge'
-- ARGV[3]    the mapping's parameters, as the client knows them
-- ARGV[4]    the counter's name
-- ARGV[5]    the counter's parameters, as the client knows them
-- ARGV[6]    the counter's generation, as the client knows it
-- ARGV[7]    the mapping's generation, as the client knows it; '-' without a mapping
-- ARGV[8]    when the current slice begins, as the client believes (ms)
-- ARGV[9]    when it ends (ms)
-- ARGV[10]   when it leaves the window (ms); 0: never
-- ARGV[11]   the longest time for which the lane is kept (ms)
-- ARGV[12]   the limit of entries in a bucket. A bucket with more is split
-- ARGV[13]   the number of the last bucket that may be split
-- ARGV[14]   the most ids that the mapping may give
-- ARGV[15]   the number of slices in KEYS
-- ARGV[16]   the numbers of the pieces of each slice: '0' or '0 15'
-- ARGV[17]   the members (`half_at` in shared/buckets.lua). Without a mapping: their ids, four bytes each, the highest first. For
--            'merge': the numbers of the chunks, also four bytes each. None comes twice
-- ARGV[18..]  the members' texts, if the mapping stores them. For 'merge': the containers
--
-- Reply      {0, answers, splits, members, is_left}  answers: a character per member. 1: it was newly counted ('add'), was counted
--                             ('contains'), was discarded, or was merged. 0: otherwise. 2: it must be sent again: its half
--                             has been split or must be, or its piece is not in KEYS, so the client must read the layout
--                             first; or the call had too much to do. splits: the client's buckets that have been split.
--                             members: the number of ids that the mapping has given. is_left: 1 if the call had too much to do
--            {1, now}         the server's clock (ms) is not within ARGV[8..9]; nothing changed
--            {2, parameters}  the mapping is stored with other parameters; nothing changed
--            {2, parameters, 1}  the counter is stored with other parameters; nothing changed
--            {3, number}      the lane has had a later call: this is a stray copy of an answered call; nothing changed
--            {5, of, generation}  the generations of the mapping and of the counter, because ARGV has others. A missing counter
--                             and its mapping were created; nothing was counted
--            {6, answers, splits, members, is_left}  as with 0, but the mapping is full: members with answer 2 and no id get none
--            {7, of}          the counter's ids are of this generation, which is not the mapping's; nothing changed
--            {8, key}         the key's value is not tbloom's, or missing where there must be one; nothing changed
-- Errors     WRONGTYPE, OOM (not to 'discard'), READONLY, each before anything is changed

local lane_key, mapping_key, layout_key, members_key, counters_key, FIRST_KEY = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], 6
local number, verb, mapping, counter, parameters = read_token(ARGV[1]), ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local generation, mapping_generation, begins, ends = ARGV[6], ARGV[7], tonumber(ARGV[8]), tonumber(ARGV[9])
local expires, lane_ttl, max_members = tonumber(ARGV[10]), tonumber(ARGV[11]), tonumber(ARGV[14])
local slices, items, FIRST_MEMBER = tonumber(ARGV[15]), ARGV[17], 18
local is_mapped, is_merge = mapping_generation ~= '-', verb == 'merge'
local is_added, has_ids = verb == 'add' or is_merge, is_merge or not is_mapped
local CHUNK, PIECE, asked = 65536, 2 ^ 28, #ARGV[17] / (has_ids and 4 or 20)
-- MAX_WORK limits the work of one call. Writing 8 KB is 1 unit of work, and converting a container to another form is CONVERSION
-- units. MAX_READ limits the bytes of containers that are read: after that, the call looks at no further member.
local MAX_WORK, CONVERSION, MAX_READ = 40, 40, 128 * 8192

local stored, of, stored_parameters, entry = entry_of(counters_key, counter)
-- The token is checked first: a resent call gets its first answer, even if something has changed since.
if verb ~= 'contains' then
  local answered, last = answers_in(redis.call('GET', lane_key), number, generation)
  if answered and stored == generation then return {0, answered, {}, 0, 0} end
  if last then return {3, last} end
end

local now = server_time()
if now < begins or now >= ends then return {1, now} end
local refusal, stored_mapping = disagreement(mapping_key, mapping, true)
if refusal then return refusal end
if entry and not stored then return {8, counters_key} end
if stored and stored_parameters ~= parameters then return {2, stored_parameters, 1} end
local layout = is_mapped and generation_of(layout_key) or '-'
if stored and of ~= layout then return {7, of} end
-- A mapping has a number of members from its start. If the number is missing, the server has lost it.
local members = is_mapped and redis.call('GET', members_key) or #layout == 16 and '' or '0'
if #layout == 16 and not (string.find(members, '^%d+$') and #members < 17) then return {8, members_key} end
members = tonumber(members)
local first_head = head_of(KEYS[FIRST_KEY], generation)
if not first_head then return {8, KEYS[FIRST_KEY]} end
if not stored then
  if not is_added then return {0, string.rep('0', asked), {}, members or 0, 0} end
  stored = new_generation()
  if not stored_mapping then redis.call('SET', mapping_key, mapping) end
  if layout == '' then
    layout = stored
    redis.call('SET', layout_key, layout)
    redis.call('SET', members_key, '0')
  end
  redis.call('HSET', counters_key, counter, stored .. ' ' .. layout .. ' ' .. parameters)
  -- Without slices, an empty piece is stored, so that clients notice if the server drops it. (With slices, pieces may expire.)
  if expires == 0 then store({key = KEYS[FIRST_KEY]}, {}, 0, stored, 0) end
  return {5, layout, stored}
end
if stored ~= generation or layout ~= mapping_generation then return {5, layout, stored} end
if expires == 0 and not first_head.is_live then return {8, KEYS[FIRST_KEY]} end

local pieces, pieces_named = {}, 0
for piece in string.gmatch(ARGV[16], '%d+') do pieces[tonumber(piece)], pieces_named = pieces_named, pieces_named + 1 end
local FIRST_BUCKET = FIRST_KEY + slices * pieces_named
local directory = directory_of(layout_key, FIRST_BUCKET)
directory.size, directory.most, directory.last = 'HLEN', tonumber(ARGV[12]), tonumber(ARGV[13])

-- Returns the id of a member: the client's, or the one in its bucket. Returns nil if the bucket has none, and false if the entry is
-- not tbloom's. For 'merge', returns the first id of the chunk.
local function id_of(member, at)
  if has_ids then
    local a, b, c, d = string.byte(items, 4 * member + 1, 4 * member + 4)
    return (((a * 256 + b) * 256 + c) * 256 + d) * (is_merge and CHUNK or 1)
  end
  local entry = redis.call('HGET', KEYS[at], fingerprint_at(items, member))
  local id = entry and tonumber(string.match(entry, '^(%d+)$') or string.match(entry, '^(%d+):'))
  if entry and not (id and id < members) then return false end
  return id or nil
end

-- Returns the chunk of an id in a slice, or nil if its piece is not in KEYS. `lows` has the ids to add to the chunk or to discard
-- from it, and `asking` the members with these ids.
local heads, chunks, by_place, read, damaged = {[KEYS[FIRST_KEY]] = first_head}, {}, {}, 0, nil
local function chunk_of(slice, id)
  local at, piece = math.floor(id / CHUNK), pieces[math.floor(id / PIECE)]
  if not piece then return nil end
  local chunk = by_place[slice * CHUNK + at]
  if chunk then return chunk end
  local key = KEYS[FIRST_KEY + (slice - 1) * pieces_named + piece]
  local head = heads[key] or head_of(key, generation)
  chunk = {at = at, head = head, lows = {}, asking = {}}
  heads[key], chunks[#chunks + 1], by_place[slice * CHUNK + at] = head, chunk, chunk
  local is_damaged = not head
  if head then chunk.container, is_damaged = container_at(head, at) end
  if is_damaged then damaged, chunk.container = key, nil end
  read = read + #(chunk.container or '')
  return chunk
end

-- Returns whether an id is in its chunk, and true if that is to change. An id whose chunk is to change is noted in the chunk.
local function look_at(chunk, id, member)
  local low = id % CHUNK
  if is_merge then
    chunk.asking[1], chunk.more = member, ARGV[FIRST_MEMBER + member]
    return false, true
  end
  local is_there = chunk.container ~= nil and holds(chunk.container, low)
  if verb == 'contains' or is_there == is_added then return is_there end
  local n = #chunk.lows + 1
  chunk.lows[n], chunk.asking[n] = low, member
  return is_there, true
end

-- (1) No write comes before this point, so that a look-up gets its answer even from a server that refuses writes.
local answers, unknown, is_left = {}, {}, false
for member = 0, asked - 1 do
  local at = FIRST_KEY
  if read > MAX_READ then at, is_left = nil, true elseif not has_ids then at = place(directory, items, member) end
  local id = at and id_of(member, at)
  local answer = '0'
  if id == false then
    return {8, KEYS[at]}
  elseif id then
    for slice = 1, slices do
      local chunk = chunk_of(slice, id)
      if not chunk then
        answer = '2'
        break
      end
      local is_there, is_changed = look_at(chunk, id, member)
      if is_changed or is_there and verb == 'contains' then answer = '1' end
    end
  elseif not at then
    answer = '2'
  elseif is_added then
    unknown[#unknown + 1] = member
  end
  answers[member + 1] = answer
end
-- One call changes only some containers, because each is written as a whole, and converting one to another form takes long.
local work, changes = 0, #unknown > 0 or verb == 'discard'
for _, chunk in ipairs(chunks) do
  if #chunk.asking > 0 then
    local container = chunk.container or 'a'
    local _, size = form_of(container)
    local cost = #container / 8192
    if chunk.more then
      cost = chunk.container and CONVERSION or 4
    elseif is_due(size, size + #chunk.lows) then
      cost = cost + CONVERSION * size / 4096
    end
    if work > 0 and work + cost > MAX_WORK then
      for _, member in ipairs(chunk.asking) do answers[member + 1] = '2' end
      chunk.lows, chunk.asking, chunk.more, is_left = {}, {}, nil, true
    else
      work, changes = work + cost, true
    end
  end
end
if #unknown > 0 then chunk_of(1, members) chunk_of(1, members + #unknown - 1) end
if damaged then return {8, damaged} end

-- (2) A replica, or a server whose memory is full, refuses the first write, which therefore changes nothing. For 'discard' it is one
-- that a full server takes; it takes the other writes then, too.
if verb == 'discard' then
  redis.call('UNLINK', lane_key)
elseif changes then
  redis.call('SETRANGE', lane_key, 0, '')
end
local given, is_full = 0, false
for _, member in ipairs(unknown) do
  local at, bucket = place(directory, items, member) -- a split may have moved it
  local id = members + given
  local chunk = chunk_of(1, id)
  is_full = id >= max_members
  if is_full or not chunk or not has_room(directory, at) then
    answers[member + 1] = '2'
  else
    local kept = ARGV[FIRST_MEMBER + member]
    redis.call('HSET', KEYS[at], fingerprint_at(items, member), kept and string.format('%.0f:', id) .. kept or id)
    look_at(chunk, id, member)
    answers[member + 1], given = '1', given + 1
    split_if_due(directory, at, bucket)
  end
end
answers = table.concat(answers)

-- (3) The ids are added to their chunks, or removed from them.
local containers, n = {}, {}
for _, chunk in ipairs(chunks) do
  if #chunk.asking > 0 then
    local head, lows, container, new = chunk.head, chunk.lows, nil, 0
    if chunk.more then
      local stored_container = chunk.container
      container = stored_container and united(stored_container, chunk.more, lane_key, KEYS[#KEYS]) or chunk.more
      new = count_of(container) - (stored_container and count_of(stored_container) or 0)
    else
      table.sort(lows)
      container, new = changed(chunk.container or 'a', lows, is_added) or false, is_added and #lows or -#lows
    end
    containers[head] = containers[head] or {}
    containers[head][chunk.at], n[head] = container, (n[head] or head.n) + new
  end
end
if is_merge then redis.call('UNLINK', KEYS[#KEYS]) end
for head, own in pairs(containers) do store(head, own, n[head], generation, expires) end

-- The answers of an add that changed nothing are not kept, because known members come often, and so need no write. The answers of
-- a discard are always kept, because a member may be added before a late copy of this call arrives.
if verb == 'discard' or given > 0 or next(containers) then
  if not stored_mapping then redis.call('SET', mapping_key, mapping) end
  if given > 0 then redis.call('SET', members_key, string.format('%.0f', members + given)) end
  redis.call('SET', lane_key, lane_entry(number, answers, now, generation), 'PX', lane_ttl)
end
return {is_full and 6 or 0, answers, directory.splits, members + given, is_left and 1 or 0}

-- count: the number of distinct members in any of these operands ('or'), in all ('and'), or in an odd number of them
-- ('xor'). An operand is the union of some slices of one counter.
--
-- It counts chunk by chunk (see add.lua). Chunks of sorted ids only are counted at once; the others when the client calls
-- again with their bitmaps in KEYS. A call ends after about 2 ms of work, within a chunk too, and replies the id from which
-- the next call continues: what is added before that id meanwhile is not counted.
--
-- KEYS[1]    the mapping's parameters
-- KEYS[2]    the mapping's layout, which begins with its generation
-- KEYS[3]    the number of ids that the mapping has given
-- KEYS[4]    the parameters of the mapping's counters, by name
-- KEYS[5..]  the directories of the first operand's slices, of the second one's, ...; then a scratch key for each operand,
--            and one more; then for each id in ARGV the bitmaps of all slices
--
-- ARGV[1]    the mapping's parameters, as the client knows them
-- ARGV[2]    'or', 'and' or 'xor'
-- ARGV[3]    when the current slice begins, as the client believes (ms)
-- ARGV[4]    when it ends (ms)
-- ARGV[5]    the number of slices of each operand: '1 7 1'
-- ARGV[6]    the number of counters
-- ARGV[7]    the id from which the count continues, if the call names no chunks
-- ARGV[8]    the mapping's generation in the reply to the call before this one; '': this is the first call
-- ARGV[9..]  for each counter, its name, its parameters, and the directory that must exist if the counter does (1: the
--            first one; 0: none); then for each chunk whose bitmaps are in KEYS, the id from which to count it. If
--            there are such chunks, only these are counted
--
-- Reply      {0, count, next, left, generation}  count: of the ids that were looked at. next: the id from which the
--                             count continues (-1: nowhere). left: for each chunk that needs bitmaps, or more time, the
--                             id from which its count continues
--            {1, now}         the server's clock (ms) is not within ARGV[3..4]
--            {2, parameters}  the mapping is stored with other parameters
--            {2, parameters, counter}  this counter is stored with other parameters; the first in ARGV is number 0
--            {5, generation}  the generation is not ARGV[8]
--            {7, generation, slice}  this slice has ids of this generation, which is not the mapping's; the first in
--                             KEYS is number 0
--            {8, key}         the key's value is not tbloom's, or missing where there must be one
-- Errors     WRONGTYPE; OOM and READONLY, if bitmaps have to be combined in scratch keys

local mapping_key, layout_key, members_key, counters_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local FIRST_KEY, FIRST_COUNTER, CHUNK = 5, 9, 65536
local mapping, operation, begins, ends = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local counters, first_id, known_generation = tonumber(ARGV[6]), tonumber(ARGV[7]), ARGV[8]
local FIRST_NAMED = FIRST_COUNTER + 3 * counters
local is_named = #ARGV >= FIRST_NAMED
-- In units of about 0.1 us.
local MAX_WORK, PER_ENTRY, PER_SEARCH, PER_BITMAP, PER_BIT, work = 20000, 10, 20, 60, 5, 0
-- The limit of ids that are combined in one range of a chunk.
local MAX_IDS = 5000
-- Directories with more fields together are not listed; a call then tries this number of chunk numbers.
local MAX_FIELDS = 1024
-- The limit of bitmaps for the next call.
local MAX_BITMAPS = 1000

local refusal = disagreement(mapping_key, mapping, true)
if refusal then return refusal end
local must_exist = {}
for i = FIRST_COUNTER, FIRST_NAMED - 1, 3 do
  local stored = redis.call('HGET', counters_key, ARGV[i])
  if stored and stored ~= ARGV[i + 1] then return {2, stored, (i - FIRST_COUNTER) / 3} end
  if stored then must_exist[tonumber(ARGV[i + 2])] = true end
end
local now = server_time()
if now < begins or now >= ends then return {1, now} end

-- For each operand, the numbers of its slices, from 1 on; then the first scratch key and the first bitmap in KEYS.
local operands, slices = {}, 0
for size in string.gmatch(ARGV[5], '%d+') do
  local operand = {}
  for i = 1, tonumber(size) do operand[i] = slices + i end
  operands[#operands + 1], slices = operand, slices + tonumber(size)
end
local FIRST_SCRATCH = FIRST_KEY + slices
local FIRST_BITMAP = FIRST_SCRATCH + #operands + 1
local function directory_of(slice)
  return KEYS[FIRST_KEY - 1 + slice]
end

local generation = generation_of(layout_key)
if known_generation ~= '' and known_generation ~= generation then return {5, generation} end
for slice = 1, slices do
  local of, n = unpack(redis.call('HMGET', directory_of(slice), 'of', 'n'))
  if of and of ~= generation then return {7, of, slice - 1} end
  if (of or n or must_exist[slice]) and not is_number(n or '') then return {8, directory_of(slice)} end
  if slices == 1 then return {0, tonumber(n or 0), -1, {}, generation} end
end
-- A union needs no operands, only slices.
if operation == 'or' or #operands == 1 then
  operation, operands = 'or', {{}}
  for slice = 1, slices do operands[1][slice] = slice end
end

-- The id from which to count each chunk: of the chunks that the call names, or that a directory has. For 'and', the operand
-- with the fewest chunks has all that are needed.
local function list_chunks()
  local found = {}
  if is_named then
    for i = FIRST_NAMED, #ARGV do found[#found + 1] = tonumber(ARGV[i]) end
    return found, -1
  end
  local fewest, looked_at
  for i, operand in ipairs(operands) do
    local fields = 0
    for _, slice in ipairs(operand) do fields = fields + redis.call('HLEN', directory_of(slice)) end
    if i == 1 then
      fewest, looked_at = fields, {operand}
    elseif operation ~= 'and' then
      fewest, looked_at[i] = fewest + fields, operand
    elseif fields < fewest then
      fewest, looked_at = fields, {operand}
    end
  end
  local first = math.floor(first_id / CHUNK)
  if fewest > MAX_FIELDS then
    local newest = math.floor(((tonumber(redis.call('GET', members_key) or '') or 2 ^ 32) - 1) / CHUNK)
    local last = math.min(first + MAX_FIELDS - 1, newest)
    for chunk = first, last do found[#found + 1] = math.max(chunk * CHUNK, first_id) end
    return found, last < newest and (last + 1) * CHUNK or -1
  end
  local are_there = {}
  for _, operand in ipairs(looked_at) do
    for _, slice in ipairs(operand) do
      for _, field in ipairs(redis.call('HKEYS', directory_of(slice))) do
        local chunk = tonumber(field)
        if chunk and chunk >= first and not are_there[chunk] then
          are_there[chunk], found[#found + 1] = true, math.max(chunk * CHUNK, first_id)
        end
      end
    end
  end
  work = work + 5 * fewest
  table.sort(found)
  return found, -1
end

-- The script removes the scratch keys at its end, so nothing may raise an error from here on.
local used, refused = {}, nil
local function combine(name, scratch, bitmaps)
  if not next(used) then
    for i = FIRST_SCRATCH, FIRST_BITMAP - 1 do redis.call('GETBIT', KEYS[i], 0) end -- WRONGTYPE: another program's
  end
  -- Lua passes 8,000 words to a command at most.
  redis.call('BITOP', name, scratch, unpack(bitmaps, 1, math.min(1000, #bitmaps)))
  used[scratch] = true
  for i = 1001, #bitmaps, 1000 do
    redis.call('BITOP', name, scratch, scratch, unpack(bitmaps, i, math.min(i + 999, #bitmaps)))
  end
  work = work + PER_BITMAP * #bitmaps
end

-- The number of these ids in a bitmap.
local function count_bits(bitmap, ids)
  local arguments, masks, n = {}, {}, 0
  local function read()
    for i, word in ipairs(redis.call('BITFIELD_RO', bitmap, unpack(arguments))) do
      local common = bit.band(word, masks[i])
      while common ~= 0 do common, n = bit.band(common, common - 1), n + 1 end
    end
    arguments, masks = {}, {}
  end
  for word, mask in pairs(words_of(ids)) do
    local at = #arguments
    arguments[at + 1], arguments[at + 2], arguments[at + 3] = 'GET', 'u32', '#' .. word
    masks[#masks + 1] = mask
    if at > 3000 then read() end
  end
  if #masks > 0 then read() end
  work = work + PER_BIT * #ids
  return n
end

-- The number of ids that two entries of a chunk have in common. Each is sorted ids, or a bitmap with a key.
local function count_common(one, one_key, other, other_key, result)
  local is_sorted, other_is_sorted = string.byte(one) == 58, string.byte(other) == 58
  if not is_sorted and not other_is_sorted then
    combine('AND', result, {one_key, other_key})
    return redis.call('BITCOUNT', result)
  end
  if not is_sorted or other_is_sorted and #other < #one then
    one, other, other_key, other_is_sorted = other, one, one_key, is_sorted
  end
  local ids, n = {}, 0
  append_ids(one, ids)
  if not other_is_sorted then return count_bits(other_key, ids) end
  if 16 * #one < #other then
    for _, id in ipairs(ids) do
      if select(2, position_of(other, id)) then n = n + 1 end
    end
    work = work + PER_SEARCH * #ids
    return n
  end
  local others, i, j = {}, 1, 1
  append_ids(other, others)
  local id, other_id = ids[1], others[1]
  while id and other_id do
    if id == other_id then n = n + 1 end
    local is_first = id <= other_id
    if id >= other_id then
      j = j + 1
      other_id = others[j]
    end
    if is_first then
      i = i + 1
      id = ids[i]
    end
  end
  work = work + #ids + #others
  return n
end

-- The union of some slices in a range of a chunk: the distinct ids of the sorted ones, and the keys of the bitmaps.
local function together(entries, keys, operand, from, to)
  local sorted, ids, is_there, bitmaps = {}, {}, {}, {}
  for _, slice in ipairs(operand) do
    local entry = entries[slice]
    if entry and string.byte(entry) == 58 then
      append_ids(entry, sorted, position_of(entry, from), (position_of(entry, to)))
    elseif entry then
      bitmaps[#bitmaps + 1] = keys[slice]
    end
  end
  for _, id in ipairs(sorted) do
    if not is_there[id] then is_there[id], ids[#ids + 1] = true, id end
  end
  work = work + 3 * #sorted
  return ids, bitmaps
end

-- The three operations on a range of a chunk. Each operand is a list of ids, or a bitmap.
local function union(ids, bitmaps, result, from, to)
  if #bitmaps == 0 then return #ids end
  local bitmap = bitmaps[1]
  if #bitmaps > 1 then
    combine('OR', result, bitmaps)
    bitmap = result
  end
  return redis.call('BITCOUNT', bitmap, from / 8, to / 8 - 1) + #ids - count_bits(bitmap, ids)
end

local function intersection(all, bitmaps, result, from, to)
  local bitmap = bitmaps[1]
  if #bitmaps > 1 then
    combine('AND', result, bitmaps)
    bitmap = result
  end
  if #all == 0 then return redis.call('BITCOUNT', bitmap, from / 8, to / 8 - 1) end
  table.sort(all, function(one, other) return #one < #other end)
  local times, common = {}, {}
  for i, ids in ipairs(all) do
    for _, id in ipairs(ids) do
      if i == 1 or times[id] == i - 1 then times[id] = i end
      if i == #all and times[id] == i then common[#common + 1] = id end
    end
  end
  return bitmap and count_bits(bitmap, common) or #common
end

local function difference(all, bitmaps, result, from, to)
  local is_odd, odd = {}, {}
  for _, ids in ipairs(all) do
    for _, id in ipairs(ids) do is_odd[id] = not is_odd[id] or nil end
  end
  for id in pairs(is_odd) do odd[#odd + 1] = id end
  if #bitmaps == 0 then return #odd end
  combine('XOR', result, bitmaps)
  return redis.call('BITCOUNT', result, from / 8, to / 8 - 1) + #odd - 2 * count_bits(result, odd)
end

local function count_range(entries, keys, from, to)
  local result = KEYS[FIRST_SCRATCH + #operands]
  if #operands == 1 then
    local ids, bitmaps = together(entries, keys, operands[1], from, to)
    return union(ids, bitmaps, result, from, to)
  end
  local all, bitmaps = {}, {}
  for i, operand in ipairs(operands) do
    local ids, own = together(entries, keys, operand, from, to)
    if #own == 0 then
      all[#all + 1] = ids
    elseif #own == 1 and #ids == 0 then
      bitmaps[#bitmaps + 1] = own[1]
    else
      local scratch = KEYS[FIRST_SCRATCH + i - 1]
      combine('OR', scratch, own)
      for _, id in ipairs(ids) do redis.call('SETBIT', scratch, id, 1) end
      work = work + PER_BIT * #ids
      bitmaps[#bitmaps + 1] = scratch
    end
  end
  return (operation == 'and' and intersection or difference)(all, bitmaps, result, from, to)
end

-- The end of a range of a chunk that begins at from and has few enough ids of these lists. It ends with a byte of a bitmap,
-- so that BITCOUNT can count it.
local function end_of_range(lists, ids, from)
  local width = CHUNK
  while width > 8 and (from % width > 0 or width * ids > MAX_IDS * CHUNK) do width = width / 2 end
  while width > 8 do
    local n = 0
    for _, list in ipairs(lists) do n = n + position_of(list, from + width) - position_of(list, from) end
    work = work + 2 * PER_SEARCH * #lists
    if n <= MAX_IDS then break end
    width = width / 2
  end
  return from + width
end

-- The reply about a key that is no bitmap, or is missing; nil if it is a bitmap.
local function refusal_of(bitmap)
  local found = redis.pcall('GETBIT', bitmap, 0) -- no STRLEN: a server may store bitmaps in another form
  if type(found) == 'table' then return found end
  if redis.call('EXISTS', bitmap) == 0 then return {8, bitmap} end
end

-- The count of an id's chunk from that id on, and the id from which it continues if there was too little time. Nil: its
-- bitmaps are needed. keys: the bitmaps of all slices.
local function count_chunk(id, keys)
  local chunk, from = math.floor(id / CHUNK), id % CHUNK
  local entries, there, sizes, has_bitmap, in_operands = {}, {}, {}, false, 0
  local lists, listed = {}, 0
  for _, operand in ipairs(operands) do
    local before = #there
    for _, slice in ipairs(operand) do
      local entry = redis.call('HGET', directory_of(slice), chunk)
      if entry then
        local size, is_sorted = size_of(entry)
        refused = not size and {8, directory_of(slice)} or keys and not is_sorted and refusal_of(keys[slice]) or nil
        if refused then return end
        entries[slice], there[#there + 1], sizes[#sizes + 1] = entry, slice, size
        if is_sorted then lists[#lists + 1], listed = entry, listed + size else has_bitmap = true end
      end
    end
    work = work + PER_ENTRY * #operand
    if #there > before then in_operands = in_operands + 1 elseif operation == 'and' then return 0 end
  end
  if from == 0 and #there < 2 then return sizes[1] or 0 end
  if has_bitmap and not keys then return nil end

  keys = keys or {}
  if from == 0 and #there == 2 then
    local one, other = there[1], there[2]
    local result = KEYS[FIRST_SCRATCH + #operands]
    local n = count_common(entries[one], keys[one], entries[other], keys[other], result)
    if operation == 'and' then return n end
    return sizes[1] + sizes[2] - in_operands * n
  end
  local n = 0
  repeat
    local to = end_of_range(lists, listed, from)
    n, from = n + count_range(entries, keys, from, to), to
  until from == CHUNK or work > MAX_WORK
  return n, from < CHUNK and chunk * CHUNK + from or nil
end

local to_do, following = list_chunks()
local count, left = 0, {}
for i, id in ipairs(to_do) do
  local n, going_on
  local has_time = work <= MAX_WORK and #left * slices < MAX_BITMAPS
  if has_time then
    local keys
    if is_named then
      keys = {}
      for slice = 1, slices do keys[slice] = KEYS[FIRST_BITMAP - 1 + (i - 1) * slices + slice] end
    end
    n, going_on = count_chunk(id, keys)
    if refused then break end
    count = count + (n or 0)
  end
  local rest = going_on or not n and id or nil
  if rest and (is_named or has_time and not n) then
    left[#left + 1] = rest
  elseif rest then
    following = rest
    break
  end
end
for scratch in pairs(used) do redis.call('UNLINK', scratch) end
if refused then return refused end
return {0, count, following, left, generation}

-- distinct_count: how many distinct members do these counters have together ('or'), in common ('and'), or in an odd
-- number of them ('xor')? An operand is one counter: one slice of it, or several, which it has together.
--
-- Chunk by chunk (distinct_add.lua says what those are). Those that are sorted ids in all the directories are counted
-- at once; the others when the caller comes again with their bitmaps' keys. A call ends after some work, and says where
-- it ended: what is added meanwhile to chunks that were counted is not counted any more.
--
-- KEYS[1]    the mapping's parameters
-- KEYS[2]    the mapping's layout, which begins with its generation
-- KEYS[3]    how many ids the mapping has given
-- KEYS[4]    the parameters of the mapping's counters, by name
-- KEYS[5..]  the directories of the first operand's slices, then those of the second one, ...; then one scratch key
--            more than operands; then for each chunk in ARGV the bitmaps of all slices
--
-- ARGV[1]    the mapping's parameters, as the caller knows them
-- ARGV[2]    'or', 'and' or 'xor'
-- ARGV[3]    when the current slice begins, as the caller believes (ms)
-- ARGV[4]    when it ends (ms)
-- ARGV[5]    how many slices the operands have: '1 7 1'
-- ARGV[6]    how many counters there are
-- ARGV[7]    the first chunk that is to be looked at, where the caller names none
-- ARGV[8..]  for each counter, its name, the parameters that the caller works with, and which directory must be there if
--            the counter is (1: the first one; 0: none must); then the numbers of the chunks whose bitmaps are in KEYS:
--            only these are to be looked at
--
-- Reply      {0, count, next, left}  how many there are in the chunks that were counted; from which chunk on they
--                             remain to be looked at (-1: from none); and which remain of those named, or before next
--            {1, now}         the server's clock (ms) is not within ARGV[3..4]
--            {2, parameters}  the mapping is stored with others
--            {2, parameters, counter}  this counter is, the first in ARGV being number 0
--            {7, generation, slice}  this slice, the first in KEYS being number 0, has ids of this generation, which
--                             is not the mapping's
--            {8, key}         the key holds what is not tbloom's, or what it held is lost
-- Errors     WRONGTYPE; OOM and READONLY, where bitmaps have to be put together in scratch keys

local mapping_key, layout_key, members_key, counters_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local FIRST_KEY, FIRST_COUNTER = 5, 8
local mapping, operation, begins, ends = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local counters, first_chunk = tonumber(ARGV[6]), tonumber(ARGV[7])
local FIRST_CHUNK = FIRST_COUNTER + 3 * counters
-- In units of about 0.1 us; together 2 ms.
local MOST_WORK, PER_ENTRY, PER_BITMAP, PER_BIT, work = 20000, 8, 60, 5, 0
-- A directory with more fields is not listed; what is looked at then is so many chunks that there may be.
local MOST_FIELDS = 1024
-- So many bitmaps the caller is to bring for the next call.
local MOST_BITMAPS = 1000

local refusal = other_parameters(mapping_key, mapping, true)
if refusal then return refusal end
local must_be_there = {}
for i = FIRST_COUNTER, FIRST_CHUNK - 1, 3 do
  local stored = redis.call('HGET', counters_key, ARGV[i])
  if stored and stored ~= ARGV[i + 1] then return {2, stored, (i - FIRST_COUNTER) / 3} end
  if stored then must_be_there[tonumber(ARGV[i + 2])] = true end
end
local now = server_time()
if now < begins or now >= ends then return {1, now} end

-- Of each operand, the indexes of its slices, 1 and up; then where the scratch keys and the bitmaps begin in KEYS.
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
local n = 0
for slice = 1, slices do
  local of
  of, n = unpack(redis.call('HMGET', directory_of(slice), 'of', 'n'))
  if of and of ~= generation then return {7, of, slice - 1} end
  if (of or must_be_there[slice]) and not is_number(n or '') then return {8, directory_of(slice)} end
end
if slices == 1 then return {0, tonumber(n or 0), -1, {}} end
-- What they have together needs no operands.
if operation == 'or' then
  operands = {{}}
  for slice = 1, slices do operands[1][slice] = slice end
end

-- The chunks to be looked at: those that are named; else those that a directory has, from the first one on. All that
-- several operands have in common is in the one with the fewest.
local function chunks_to_do()
  local found = {}
  if #ARGV >= FIRST_CHUNK then
    for i = FIRST_CHUNK, #ARGV do found[#found + 1] = tonumber(ARGV[i]) end
    return found, -1
  end
  local fewest, looked_at = nil, {}
  for _, operand in ipairs(operands) do
    local fields = 0
    for _, slice in ipairs(operand) do
      fields = fields + redis.call('HLEN', directory_of(slice))
      if operation ~= 'and' then looked_at[#looked_at + 1] = slice end
    end
    if operation == 'and' and (not fewest or fields < fewest) then fewest, looked_at = fields, operand end
  end
  for _, slice in ipairs(looked_at) do
    if redis.call('HLEN', directory_of(slice)) > MOST_FIELDS then
      local members = tonumber(redis.call('GET', members_key) or 2 ^ 32)
      local newest = math.floor((members - 1) / 65536)
      local last = math.min(first_chunk + MOST_FIELDS - 1, newest)
      for chunk = first_chunk, last do found[#found + 1] = chunk end
      return found, last < newest and last + 1 or -1
    end
  end
  local are_there = {}
  for _, slice in ipairs(looked_at) do
    for _, field in ipairs(redis.call('HKEYS', directory_of(slice))) do
      local chunk = tonumber(field)
      if chunk and chunk >= first_chunk and not are_there[chunk] then
        are_there[chunk], found[#found + 1] = true, chunk
      end
    end
  end
  table.sort(found)
  return found, -1
end

-- What some slices have together in a chunk: their distinct sorted ids, and the bitmaps' keys.
local function together(entries, keys, operand)
  local sorted, ids, is_there, bitmaps = {}, {}, {}, {}
  for _, slice in ipairs(operand) do
    local entry = entries[slice]
    if entry and string.byte(entry) == 58 then
      append_ids(entry, sorted)
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

-- In scratch keys there is something until the end of the script, so nothing may raise an error from then on.
local used, refused = {}, nil
local function combine(name, scratch, bitmaps)
  if not next(used) then
    for i = FIRST_SCRATCH, FIRST_BITMAP - 1 do redis.call('GETBIT', KEYS[i], 0) end -- WRONGTYPE: not ours
  end
  -- Lua passes 8,000 words to a command at most.
  redis.call('BITOP', name, scratch, unpack(bitmaps, 1, math.min(1000, #bitmaps)))
  used[scratch] = true
  for i = 1001, #bitmaps, 1000 do
    redis.call('BITOP', name, scratch, scratch, unpack(bitmaps, i, math.min(i + 999, #bitmaps)))
  end
  work = work + PER_BITMAP * #bitmaps
end

-- How many of these ids a bitmap has.
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

-- How many two entries have in common.
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
    work = work + 30 * #ids
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

-- The three sums of more entries than two. Each operand is ids or a bitmap.
local function union(ids, bitmaps, result)
  if #bitmaps == 0 then return #ids end
  local bitmap = bitmaps[1]
  if #bitmaps > 1 then
    combine('OR', result, bitmaps)
    bitmap = result
  end
  return redis.call('BITCOUNT', bitmap) + #ids - count_bits(bitmap, ids)
end

local function intersection(all, bitmaps, result)
  local bitmap = bitmaps[1]
  if #bitmaps > 1 then
    combine('AND', result, bitmaps)
    bitmap = result
  end
  if #all == 0 then return redis.call('BITCOUNT', bitmap) end
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

local function difference(all, bitmaps, result)
  local is_odd, odd, n = {}, {}, 0
  for _, ids in ipairs(all) do
    for _, id in ipairs(ids) do is_odd[id] = not is_odd[id] or nil end
  end
  for id in pairs(is_odd) do odd[#odd + 1] = id end
  if #bitmaps == 0 then return #odd end
  combine('XOR', result, bitmaps)
  return redis.call('BITCOUNT', result) + #odd - 2 * count_bits(result, odd)
end

-- What is to be replied about a key that is no bitmap, or is lost; nil where it is one.
local function refusal_of(bitmap)
  local found = redis.pcall('GETBIT', bitmap, 0) -- no STRLEN: a server may keep bitmaps in a way of its own
  if type(found) == 'table' then return found end
  if redis.call('EXISTS', bitmap) == 0 then return {8, bitmap} end
end

-- How many a chunk has; nil: its bitmaps are needed. keys: those of all slices.
local function count_chunk(chunk, keys)
  local entries, there, sizes, has_bitmap, in_operands = {}, {}, {}, false, 0
  for _, operand in ipairs(operands) do
    local before = #there
    for _, slice in ipairs(operand) do
      local entry = redis.call('HGET', directory_of(slice), chunk)
      work = work + PER_ENTRY
      entries[slice] = entry
      if entry then
        local size, is_sorted = size_of(entry)
        if not size then
          refused = {8, directory_of(slice)}
          return
        end
        there[#there + 1], sizes[#sizes + 1] = slice, size
        has_bitmap = has_bitmap or not is_sorted
        if keys and not is_sorted then
          refused = refusal_of(keys[slice])
          if refused then return end
        end
      end
    end
    if #there > before then in_operands = in_operands + 1 elseif operation == 'and' then return 0 end
  end
  if #there < 2 then return sizes[1] or 0 end
  if has_bitmap and not keys then return nil end

  local result = KEYS[FIRST_SCRATCH + #operands]
  if #there == 2 then
    keys = keys or {}
    local one, other = there[1], there[2]
    local n = count_common(entries[one], keys[one], entries[other], keys[other], result)
    if operation == 'and' then return n end
    return sizes[1] + sizes[2] - in_operands * n
  end
  if #operands == 1 then
    local ids, bitmaps = together(entries, keys, operands[1])
    return union(ids, bitmaps, result)
  end
  local all, bitmaps = {}, {}
  for i, operand in ipairs(operands) do
    local ids, own = together(entries, keys, operand)
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
  return (operation == 'and' and intersection or difference)(all, bitmaps, result)
end

local to_do, following = chunks_to_do()
local count, left, is_named = 0, {}, #ARGV >= FIRST_CHUNK
for i, chunk in ipairs(to_do) do
  if work > MOST_WORK or #left * slices >= MOST_BITMAPS then
    if is_named then left[#left + 1] = chunk else following = chunk break end
  else
    local keys
    if is_named then
      keys = {}
      for slice = 1, slices do keys[slice] = KEYS[FIRST_BITMAP - 1 + (i - 1) * slices + slice] end
    end
    local n = count_chunk(chunk, keys)
    if refused then break end
    if n then count = count + n else left[#left + 1] = chunk end
  end
end
for scratch in pairs(used) do redis.call('UNLINK', scratch) end
if refused then return refused end
return {0, count, following, left}

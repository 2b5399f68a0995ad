-- the chunks of a distinct counter: 65,536 ids each, sorted or as a bitmap.

-- Appends to a list the sorted ids of a chunk (a string: ':', then two bytes each): all, or number after + 1 to number
-- up_to.
local function append_ids(sorted, ids, after, up_to)
  local n, last = #ids, 1 + 2 * (up_to or (#sorted - 1) / 2)
  for from = 2 + 2 * (after or 0), last, 200 do
    local bytes = {string.byte(sorted, from, math.min(from + 199, last))}
    for i = 1, #bytes, 2 do
      n = n + 1
      ids[n] = bytes[i] * 256 + bytes[i + 1]
    end
  end
end

-- The number of sorted ids that are less than this one, and whether it is among them.
local function position_of(sorted, low)
  local from, to = 0, (#sorted - 1) / 2
  while from < to do
    local middle = math.floor((from + to) / 2)
    local high_byte, low_byte = string.byte(sorted, 2 + 2 * middle, 3 + 2 * middle)
    local found = high_byte * 256 + low_byte
    if found == low then return middle, true end
    if found < low then from = middle + 1 else to = middle end
  end
  return from, false
end

-- The 32-bit words of a bitmap that has just these bits, by number.
local function words_of(ids)
  local words = {}
  for _, id in ipairs(ids) do
    local word = math.floor(id / 32)
    words[word] = (words[word] or 0) + 2 ^ (31 - id % 32)
  end
  return words
end

-- Sets these bits in a new bitmap, word by word: at least twice as fast as bit by bit.
local function set_bits(key, ids)
  local arguments = {}
  redis.call('SETBIT', key, 65535, 0) -- allocates the whole size at once
  for word, value in pairs(words_of(ids)) do
    local n = #arguments
    arguments[n + 1], arguments[n + 2], arguments[n + 3] = 'SET', 'u32', '#' .. word
    arguments[n + 4] = string.format('%.0f', value)
    if n > 3000 then
      redis.call('BITFIELD', key, unpack(arguments))
      arguments = {}
    end
  end
  if #arguments > 0 then redis.call('BITFIELD', key, unpack(arguments)) end
end

-- Whether a text is a whole number as tbloom writes it.
local function is_number(text)
  return string.find(text, '^%d+$') ~= nil and #text < 17
end

-- The number of ids that an entry of a directory stands for, and whether it holds them, sorted; nil: it is not tbloom's.
local function size_of(entry)
  if string.byte(entry) == 58 then
    if #entry % 2 == 1 and #entry <= 8193 then return (#entry - 1) / 2, true end
  elseif is_number(entry) then
    local n = tonumber(entry)
    if n > 4096 and n <= 65536 then return n, false end
  end
end

-- The chunks of a directory that are bitmaps, and the number of the others. The entry of a bitmap is a number of 4 or 5
-- digits, so entries of other lengths, which may have 8 KB, are not read.
local function bitmaps_in(directory)
  local bitmaps, sorted = {}, 0
  for _, field in ipairs(redis.call('HKEYS', directory)) do
    if is_number(field) and #field < 6 then
      local size = redis.call('HSTRLEN', directory, field)
      if (size == 4 or size == 5) and string.byte(redis.call('HGET', directory, field)) ~= 58 then
        bitmaps[#bitmaps + 1] = tonumber(field)
      else
        sorted = sorted + 1
      end
    end
  end
  return bitmaps, sorted
end

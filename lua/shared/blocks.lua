-- the blocks of parts (docs/format.md), and the search for the items that no part holds.
--
-- A part consists of rows of 64 bits (8 bytes); a bit of a row is a column. An item has one block in each part, which is a
-- number of successive rows, and one column in each row of the block. If all of these columns are set, the part holds the
-- item. Each block begins in the middle of the block before it. The client computes the columns of an item, and where its
-- blocks begin; the scripts only look them up.
--
-- A packed item begins with its columns, two bytes each: the byte of the row (0 to 7), and the column's bit in that byte (128 to
-- 1). There are at least as many columns as a block has rows. For each size of part, 4 bytes follow, the lowest first: the byte
-- at which the item's block begins in parts of that size. `sizes` has 3 bytes for each size, in the order of KEYS: the rows of a
-- block, and the number of parts in two bytes.
--
-- Blocks that are near each other are read together, so a client sends items in the order of their blocks. Any order gets the
-- same answers.
--
-- Includes   none

local byte, format = string.byte, string.format

-- The number of bytes in a row.
local WIDTH = 8

-- A run is items that follow each other, with blocks near each other in a part. One GETRANGE reads them all. GAP is the most bytes
-- from the beginning of a block to that of the next one, SPAN to that of the run's last one. (By callgrind, to read 640 bytes more
-- takes as many instructions as another call: Lua computes a hash of each text.)
local GAP, SPAN = 640, 4096

-- Returns where a block begins, from the 4 bytes of a packed item at `place`.
local function start_at(items, place)
  local a, b, c, d = byte(items, place, place + 3)
  return a + 256 * b + 65536 * c + 16777216 * d
end

-- Returns a number as an argument for redis.call. Text is faster before Redis 7.2. From 7.2 on, it makes a batch of seen items
-- slower by a fifth.
local IS_SLOW = (redis.REDIS_VERSION_NUM or 0) < 0x070200
local function argument(number)
  return IS_SLOW and format('%d', number) or number
end

-- Returns a text of `size` bytes or more, with zeros for the bytes that its part lacks. The part is missing, or another program has
-- shortened it.
local function padded(text, size)
  return #text < size and text .. string.rep('\0', size - #text) or text
end

-- Returns true if all columns of the item at `at` are set in its block, which begins after `place` bytes of a text. (The loop
-- takes four rows at a time, because byte() takes nearly as long for one byte as for eight. The first row comes last, because
-- most callers have checked it.)
local function block_holds(text, place, items, at, rows)
  place = place + 1
  for _ = 4, rows, 4 do
    local a, i, b, j, c, k, d, l = byte(items, at, at + 7)
    if
      byte(text, place + 8 + b) % (j + j) < j
      or byte(text, place + 16 + c) % (k + k) < k
      or byte(text, place + 24 + d) % (l + l) < l
      or byte(text, place + a) % (i + i) < i
    then
      return false
    end
    at, place = at + 8, place + 32
  end
  for _ = 1, rows % 4 do
    local a, i = byte(items, at, at + 1)
    if byte(text, place + a) % (i + i) < i then return false end
    at, place = at + 2, place + 8
  end
  return true
end

-- Returns three arrays, and their length n: the places of the items; the byte of the part that has the column of an item's first
-- row; and the bit in that byte. `among`, if given, is a table whose keys are the places of the only items.
local function first_columns(items, item_bytes, begins, among)
  local ats, firsts, bits, n = {0}, {0}, {0}, 0 -- room for one, because most calls have one item
  for at = 1, #items, item_bytes do
    if not among or among[at] then
      n = n + 1
      local place, bit = byte(items, at, at + 1)
      local a, b, c, d = byte(items, at + begins, at + begins + 3)
      ats[n], firsts[n], bits[n] = at, place + a + 256 * b + 65536 * c + 16777216 * d, bit
    end
  end
  return ats, firsts, bits, n
end

-- Returns the index of the last item of the run that begins with the i-th of n items.
local function end_of_run(firsts, i, n)
  local most = firsts[i] + SPAN
  while i < n do
    local first, next = firsts[i], firsts[i + 1]
    if next < first or next > first + GAP or next > most then return i end
    i = i + 1
  end
  return i
end

-- Looks for the items in all parts. KEYS[first] is the first part; `begins` is how many bytes of an item precede the place of its
-- block there. Returns a table of the items that no part holds. Its keys are their places. Its values are pieces of KEYS[first]
-- that have their blocks: `text`, which begins at the byte `from`. If it has an item, all parts have been read, so another
-- program's key raises WRONGTYPE before anything is changed. `holders`, if given, gets the index in KEYS of the first part that
-- holds an item, by the item's place.
local function unseen(items, item_bytes, sizes, begins, first, holders)
  local call, keys, pieces, missing = redis.call, KEYS, nil, {}
  for size = 1, #sizes, 3 do
    local rows, high, low = byte(sizes, size, size + 2)
    local last, chosen = first + 256 * high + low - 1, not pieces and first
    local ats, firsts, bits, n = first_columns(items, item_bytes, begins, pieces)
    pieces = pieces or {}
    local i = 1
    while i <= n do
      -- The run is the items i to j. An item that a part holds leaves it: the last one, already looked at, takes its place; no other moves.
      local j = end_of_run(firsts, i, n)
      local after, piece = j + 1, nil
      local from = firsts[i] - firsts[i] % WIDTH
      local length = firsts[j] - firsts[j] % WIDTH + WIDTH * rows - from
      local from_text, to_text = argument(from), argument(from + length - 1)
      for key = first, last do
        local text = missing[key] and '' or call('GETRANGE', keys[key], from_text, to_text)
        if key == chosen then piece = {from = from, text = text} end
        if text ~= '' then
          if #text < length then text = padded(text, length) end
          for m = j, i, -1 do
            -- Most items that the part does not hold lack the first column, and are spared a call.
            local place, bit = firsts[m] - from, bits[m]
            if
              byte(text, place + 1) % (bit + bit) >= bit
              and block_holds(text, place - place % WIDTH, items, ats[m], rows)
            then
              if holders then holders[ats[m]] = key end
              if not chosen then pieces[ats[m]] = nil end
              ats[m], firsts[m], bits[m] = ats[j], firsts[j], bits[j]
              j = j - 1
            end
          end
          if j < i then break end
        elseif key ~= chosen then
          missing[key] = true -- need not be read for other items (nor a part that another program has cut before this run)
        end
      end
      if chosen then
        for m = i, j do
          pieces[ats[m]] = piece
        end
      end
      i = after
    end
    first, begins = last + 1, begins + 4
  end
  return pieces
end

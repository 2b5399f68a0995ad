-- the blocks of parts (docs/format.md), and the search for the parts that hold an item.
--
-- A part consists of rows of 64 bits (8 bytes); a bit of a row is a column. An item has one block in each part, which is a
-- number of successive rows, and one column in each row of the block. If all of these columns are set, the part holds the
-- item. Each block begins in the middle of the block before it. The client computes the columns of an item, and where its
-- blocks begin; the scripts only look them up.
--
-- A packed item begins with its columns, one byte each. There are at least as many columns as a block has rows. For each size
-- of part, 4 bytes follow, the lowest first: the byte at which the item's block begins in parts of that size. `sizes` has 3
-- bytes for each size, in the order of KEYS: the rows of a block, and the number of parts in two bytes.
--
-- Includes   none

local byte, format = string.byte, string.format

-- The number of bytes in a row.
local WIDTH = 8

-- The values of the bits of a byte. Redis counts from the highest bit.
local BITS = {[0] = 128, 64, 32, 16, 8, 4, 2, 1}

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

-- Returns the block that begins at byte `start` of a part.
local function read_block(part, start, rows)
  return redis.call('GETRANGE', part, argument(start), argument(start + WIDTH * rows - 1))
end

-- Returns true if all columns of the item at `at` are set in a block. (The loop takes four rows at a time, because byte() takes
-- as long for four bytes as for one. It looks up each bit once: with `2 * BITS[i]` and four returns, batches of seen items take
-- 6 % longer.)
local function block_holds(block, items, at, rows)
  if #block < WIDTH * rows then return false end -- the part is missing, or another program has shortened it
  local in_fours = rows - rows % 4
  for row = 0, in_fours - 1, 4 do
    local a, b, c, d = byte(items, at + row, at + row + 3)
    local place, i, j, k, l = WIDTH * row + 1, a % 8, b % 8, c % 8, d % 8
    local w, x = byte(block, place + (a - i) / 8), byte(block, place + WIDTH + (b - j) / 8)
    local y, z = byte(block, place + 2 * WIDTH + (c - k) / 8), byte(block, place + 3 * WIDTH + (d - l) / 8)
    i, j, k, l = BITS[i], BITS[j], BITS[k], BITS[l]
    if w % (i + i) < i or x % (j + j) < j or y % (k + k) < k or z % (l + l) < l then return false end
  end
  for row = in_fours, rows - 1 do
    local column = byte(items, at + row)
    local i = column % 8
    if byte(block, WIDTH * row + 1 + (column - i) / 8) % (2 * BITS[i]) < BITS[i] then return false end
  end
  return true
end

-- Returns the index in KEYS of the first part that holds the item at `at`, or nil. The search begins at KEYS[from]; KEYS[first]
-- is the first part. GETBIT checks the first row alone, because most parts without the item differ there, so that their block
-- need not be read.
local function first_part_with(sizes, columns, items, at, first, from)
  local call, place = redis.call, at + columns
  for i = 1, #sizes, 3 do
    local rows, high, low = byte(sizes, i, i + 2)
    local start, last = start_at(items, place), first + 256 * high + low - 1
    local bit = argument(8 * start + byte(items, at))
    for key = from > first and from or first, last do
      if
        call('GETBIT', KEYS[key], bit) == 1
        and block_holds(read_block(KEYS[key], start, rows), items, at, rows)
      then
        return key
      end
    end
    first, place = last + 1, place + 4
  end
end

-- Returns the place of the first item from `at` on that no part holds, where its block begins in the part KEYS[first], and that
-- block. Returns nil if no item is new. It reads all parts, so another program's key raises WRONGTYPE before anything is changed.
local function next_new(items, at, item_bytes, sizes, columns, first)
  local part, rows = KEYS[first], byte(sizes)
  for item = at, #items, item_bytes do
    local start = start_at(items, item + columns)
    local block = read_block(part, start, rows)
    if not block_holds(block, items, item, rows) and not first_part_with(sizes, columns, items, item, first, first + 1) then
      return item, start, block
    end
  end
end

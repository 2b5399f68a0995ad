-- the blocks of a slice's parts (docs/format.md): which parts hold an item.
--
-- A part is rows of 8 bytes, 64 columns. An item has one block in each part, some rows one after another, and one column in
-- each of these: where all of them are set, the part holds it. A block begins in the middle of the one before it. The client
-- computes where an item's block begins, and its columns; here they are only looked up.
--
-- A packed item is its columns, a byte each, at least as many as a block has rows; and then for each size of part 4 bytes,
-- the lowest first: where its block begins there (a byte). The sizes of the parts in KEYS, in their order, have 3 bytes each:
-- the rows of a block, and in two bytes the number of parts.
--
-- Includes   none

local byte, format = string.byte, string.format

-- The bytes of a row.
local WIDTH = 8

-- The bits of a byte: Redis counts them from the highest on.
local BITS = {[0] = 128, 64, 32, 16, 8, 4, 2, 1}

-- Where a block begins, as a packed item has it at `place`.
local function start_at(items, place)
  local a, b, c, d = byte(items, place, place + 3)
  return a + 256 * b + 65536 * c + 16777216 * d
end

-- A number for a command: before Redis 7.2 as text, which is faster; since then that makes a batch of seen items a fifth slower.
local IS_SLOW = (redis.REDIS_VERSION_NUM or 0) < 0x070200
local function argument(number)
  return IS_SLOW and format('%d', number) or number
end

-- A block of a part.
local function read_block(part, start, rows)
  return redis.call('GETRANGE', part, argument(start), argument(start + WIDTH * rows - 1))
end

-- True if the columns of the item at `at` are set in a block. (Four rows a step, because byte() of four takes as long as
-- of one; and each bit looked up once: with `2 * BITS[i]` and four returns, batches of seen items take 6 % longer.)
local function are_set(block, items, at, rows)
  if #block < WIDTH * rows then return false end -- the part is missing, or cut
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

-- The index in KEYS of the first part that holds the item at `at`, from KEYS[from] on; nil if none does. KEYS[first] is the
-- first part. Most items that a part does not hold show it in the first row; then the block is not read.
local function first_with(sizes, columns, items, at, first, from)
  local call, place = redis.call, at + columns
  for i = 1, #sizes, 3 do
    local rows, high, low = byte(sizes, i, i + 2)
    local start, last = start_at(items, place), first + 256 * high + low - 1
    local bit = argument(8 * start + byte(items, at))
    for key = from > first and from or first, last do
      if
        call('GETBIT', KEYS[key], bit) == 1
        and are_set(read_block(KEYS[key], start, rows), items, at, rows)
      then
        return key
      end
    end
    first, place = last + 1, place + 4
  end
end

-- The place of the next new item, which no part holds, from `at` on; where its block begins in the part KEYS[first]; and that
-- block. nil: no item is new. It has read all parts, so another program's key raises WRONGTYPE before anything is changed.
local function next_new(items, at, item_bytes, sizes, columns, first)
  local part, rows = KEYS[first], byte(sizes)
  for item = at, #items, item_bytes do
    local start = start_at(items, item + columns)
    local block = read_block(part, start, rows)
    if not are_set(block, items, item, rows) and not first_with(sizes, columns, items, item, first, first + 1) then
      return item, start, block
    end
  end
end

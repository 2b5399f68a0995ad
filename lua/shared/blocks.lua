-- the blocks of a slice's parts (docs/format.md): which parts hold an item.
--
-- A part is a header of 8 bytes, the number of its items, and then blocks. A block has rows of 32 bytes, 256 columns. An
-- item has one block in each part, and one column in each row: where all of these are set, the part holds it. The client
-- computes both; here they are only looked up.
--
-- Includes   none

local byte = string.byte

local format = string.format

-- The bits of a byte: Redis counts them from the highest on.
local BITS = {[0] = 128, 64, 32, 16, 8, 4, 2, 1}

-- The rows of an item's block, and its column in each. (tbloom/engine/scripts.py writes out a loop over these.)
local function columns(items, at, rows)
  local row = 0
  return function()
    row = row + 1
    if row <= rows then return row, byte(items, at + row - 1) end
  end
end

-- Reads the sizes of the parts from KEYS[first] on: '14:6 16:1' for six parts with blocks of 14 rows, and then one with
-- blocks of 16. Returns the groups of like parts, and the bytes of a packed item: its columns, a byte each (at least as
-- many as a block has rows), and then for each group 4 bytes, the lowest first: where its block begins there (a byte).
local function groups_of(sizes, first)
  local groups, most_rows = {}, 1
  for rows, parts in string.gmatch(sizes, '(%d+):(%d+)') do
    rows = tonumber(rows)
    if rows > most_rows then most_rows = rows end
    groups[#groups + 1] = {rows = rows, bytes = 32 * rows, first = first, last = first + parts - 1}
    first = first + parts
  end
  local first_start = 16 * math.ceil(most_rows / 16)
  for i = 1, #groups do groups[i].place = first_start + 4 * i - 4 end
  return groups, first_start + 4 * #groups
end

-- Where the block of the item at `at` begins in the parts of a group (a byte).
local function start_of(items, at, group)
  local a, b, c, d = byte(items, at + group.place, at + group.place + 3)
  return a + 256 * b + 65536 * c + 16777216 * d
end

-- A block of a part. (As text: Redis 7.0 takes longer to make it of a number.)
local function read_block(part, start, bytes)
  return redis.call('GETRANGE', part, format('%d', start), format('%d', start + bytes - 1))
end

-- True if the columns of the item at `at` are set in a block.
local function are_set(block, items, at, rows)
  for row, column in columns(items, at, rows) do
    local place_in_byte = column % 8
    local bit = BITS[place_in_byte]
    local bits = byte(block, 32 * row - 31 + (column - place_in_byte) / 8) or 0 -- the part is missing, or cut
    if bits % (2 * bit) < bit then return false end
  end
  return true
end

-- The bit of the item at `at` in a row, 0 or a later one, of the block that begins at `start`.
local function bit_at(items, at, start, row)
  return format('%d', 8 * start + 256 * row + byte(items, at + row))
end

-- The index in KEYS of the first part, other than KEYS[skipped], that holds the item at `at`; nil if none does. Most items
-- that a part does not hold show it in one of three rows; then the block is not read.
local function first_with(groups, items, at, skipped)
  local call = redis.call
  for i = 1, #groups do
    local group = groups[i]
    local start, rows = start_of(items, at, group), group.rows
    local first, second, third = bit_at(items, at, start, 0), nil, nil
    for key = group.first, group.last do
      if key ~= skipped and call('GETBIT', KEYS[key], first) == 1 then
        if not second then
          second, third = bit_at(items, at, start, rows > 1 and 1 or 0), bit_at(items, at, start, rows > 2 and 2 or 0)
        end
        if
          call('GETBIT', KEYS[key], second) == 1
          and call('GETBIT', KEYS[key], third) == 1
          and are_set(read_block(KEYS[key], start, group.bytes), items, at, rows)
        then
          return key
        end
      end
    end
  end
end

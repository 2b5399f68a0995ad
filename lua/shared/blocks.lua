-- the blocks of a slice's parts (docs/format.md).
--
-- A part is a header of 8 bytes, the number of its items, and then blocks. A block has rows of 32 bytes, 256 columns. An
-- item has one block in each part, and one column in each row: where all of these are set, the part holds it.

local call = redis.call

local band = bit.band

local bor = bit.bor

local rshift = bit.rshift

local byte = string.byte

local char = string.char

local sub = string.sub

local format = string.format

-- Reads the sizes of the parts from KEYS[first] on: '7200:14:6 9000:16:1' for six parts of 7,200 blocks of 14 rows, and
-- then one of 9,000 blocks of 16. Returns the groups of like parts, and the bytes of an item (see item_at).
local function groups_of(sizes, first)
  local groups, most_rows = {}, 1
  for blocks, rows, parts in string.gmatch(sizes, '(%d+):(%d+):(%d+)') do
    rows = tonumber(rows)
    if rows > most_rows then most_rows = rows end
    groups[#groups + 1] = {blocks = tonumber(blocks), rows = rows, first = first, last = first + parts - 1}
    first = first + parts
  end
  return groups, 16 * math.ceil(most_rows / 16) + 4
end

-- The item at `at` in the packed items: its columns, a byte each (at least as many as a block has rows), and the number
-- that chooses its block, 4 bytes, the lowest first. Notes in each group where the item's block is: the offsets of its
-- first byte, of the last one of its first three rows, and of its last one. (As text: Redis 7.0 takes 0.3 us to make one
-- of a number.)
local function item_at(items, at, bytes, groups)
  local columns = {byte(items, at, at + bytes - 1)}
  local a, b, c, d = columns[bytes - 3], columns[bytes - 2], columns[bytes - 1], columns[bytes]
  local hash = a + 256 * b + 65536 * c + 16777216 * d
  for i = 1, #groups do
    local group = groups[i]
    local size = 32 * group.rows
    local start = 8 + math.floor(hash * group.blocks / 4294967296) * size
    group.from, group.to = format('%d', start), format('%d', start + size - 1)
    group.head_to = size > 96 and format('%d', start + 95) or group.to
  end
  return columns
end

-- True if the item's columns are set in the block's rows from `first` to `last`.
local function are_set(block, columns, first, last)
  for row = first, last do
    local column = columns[row]
    -- A part that is missing, or too short, has zeros.
    local bits = byte(block, 32 * row - 31 + rshift(column, 3)) or 0
    if band(bits, rshift(128, band(column, 7))) == 0 then return false end
  end
  return true
end

-- True if a part holds the item; KEYS[skipped] is not looked at. Most items that a part does not hold show it in the
-- first of three rows.
local function is_in_any(groups, columns, skipped)
  local first_byte, first_bit = 1 + rshift(columns[1], 3), rshift(128, band(columns[1], 7))
  for i = 1, #groups do
    local group = groups[i]
    local rows, from, head_to = group.rows, group.from, group.head_to
    for key = group.first, group.last do
      if key ~= skipped then
        local head = call('GETRANGE', KEYS[key], from, head_to)
        if
          band(byte(head, first_byte) or 0, first_bit) ~= 0
          and are_set(head, columns, 2, rows < 3 and rows or 3)
          and (rows <= 3 or are_set(call('GETRANGE', KEYS[key], from, group.to), columns, 4, rows))
        then
          return true
        end
      end
    end
  end
  return false
end

-- The block with the item's columns set. (As numbers of 48 bits, the largest that Lua's numbers hold in whole bytes: a
-- block made of pieces of the old one takes 1.5 times as long.)
local function with_columns(block, columns, rows)
  local words, rest = math.floor(#block / 6), #block % 6
  local layout = '>' .. string.rep('I6', words) .. (rest > 0 and 'I' .. rest or '')
  local numbers = {struct.unpack(layout, block)}
  numbers[#numbers] = nil -- the position after the block
  for row = 1, rows do
    local at = 256 * row - 256 + columns[row]
    local in_word = at % 48
    local word = (at - in_word) / 48 + 1
    local bit = 2 ^ ((word > words and 8 * rest or 48) - 1 - in_word)
    local number = numbers[word]
    if number % (2 * bit) < bit then numbers[word] = number + bit end
  end
  return struct.pack(layout, unpack(numbers))
end

-- The number of items in a part, by its header.
local function items_in(part)
  return call('BITFIELD_RO', part, 'GET', 'u48', '0')[1]
end

-- New items for KEYS[key], a part of the group, which may get `capacity` items, and one more if the slice `grows`.
-- Nothing is written before `insert`.
local function new_change(key, group, capacity, grows)
  return {key = key, part = KEYS[key], group = group, capacity = capacity, grows = grows, items = 0, blocks = {}}
end

-- The item's block in the part, with the new items that are already noted in it.
local function block_of(change)
  local group = change.group
  local block = change.blocks[group.from] or call('GETRANGE', change.part, group.from, group.to)
  local missing = 32 * group.rows - #block
  return missing > 0 and block .. string.rep('\0', missing) or block
end

-- Notes a new item, whose block is given. If it does not fit, notes nothing, and returns the status of the reply: 6
-- where the slice may not grow, else 0.
local function note_new(change, block, columns)
  -- A slice that may grow takes one item in any case.
  if change.items > 0 or not change.grows then
    change.room = change.room or change.capacity - items_in(change.part)
    if change.items >= change.room then return change.grows and 0 or 6 end
  end
  change.blocks[change.group.from] = with_columns(block, columns, change.group.rows)
  change.items = change.items + 1
end

-- Gives a new part its TTL, and enters it into the register. Returns true if the register has it already: the server
-- dropped the part early, with what it held.
local function begin_part(part, register, expires, now)
  call('PEXPIREAT', part, expires)
  local known = redis.pcall('HGETALL', register)
  if known.err then return false end -- another program's key: the part goes without an entry
  local dropped = false
  for i = 1, #known, 2 do
    local part_expires = tonumber(known[i + 1]) or 0
    if part_expires <= now then call('HDEL', register, known[i]) end
    dropped = dropped or (known[i] == part and part_expires > now)
  end
  call('HSET', register, part, expires)
  prolong(register, expires, now)
  return dropped
end

-- Inserts the noted items: adds their number to the part's header, and writes their blocks. The first command also
-- touches the part's last bit, so Redis allocates a new part once, at its full size. A new part also stores the
-- parameters, or extends their TTL. Returns the number of items in the part, and true if the server had dropped the part
-- early.
local function insert(change, expires, now, register, config_key, config, stored)
  local part, new, group = change.part, change.items, change.group
  if not stored then keep(config_key, config, expires, now) end
  local last_bit = format('%.0f', 63 + 256 * group.blocks * group.rows)
  local items = call('BITFIELD', part, 'INCRBY', 'u48', '0', new, 'INCRBY', 'u1', last_bit, '0')[1]
  for from, block in pairs(change.blocks) do call('SETRANGE', part, from, block) end
  if items > new then return items, false end
  keep(config_key, config, expires, now)
  return items, begin_part(part, register, expires, now)
end

-- the blocks of a slice's parts (docs/format.md).
--
-- A part is a header of 8 bytes, the number of its items, and then blocks. A block has rows of 32 bytes, 256 columns. An
-- item has one block in each part, and one column in each row: where all of these are set, the part holds it.

local byte = string.byte

-- The bits of a byte: Redis counts them from the highest on.
local BITS = {[0] = 128, 64, 32, 16, 8, 4, 2, 1}

-- The bytes of a number of 48 bits, the most that Lua's numbers hold in whole bytes.
local BYTES = {[0] = 1099511627776, 4294967296, 16777216, 65536, 256, 1}

-- Reads the sizes of the parts from KEYS[first] on: '7200:14:6 9000:16:1' for six parts of 7,200 blocks of 14 rows, and
-- then one of 9,000 blocks of 16. Returns the groups of like parts, and the bytes of an item (see find_block).
local function groups_of(sizes, first)
  local groups, most_rows = {}, 1
  for blocks, rows, parts in string.gmatch(sizes, '(%d+):(%d+):(%d+)') do
    rows = tonumber(rows)
    if rows > most_rows then most_rows = rows end
    groups[#groups + 1] =
      {blocks = tonumber(blocks), rows = rows, bytes = 32 * rows, first = first, last = first + parts - 1}
    first = first + parts
  end
  return groups, 16 * math.ceil(most_rows / 16) + 4
end

-- The item at `at` in the packed items: its columns, a byte each (at least as many as a block has rows), and 4 bytes, the
-- lowest first, that choose its block. Notes in each group where the block begins (the offset of a byte), and where the
-- item's bits in the first two rows are. (As text: Redis 7.0 takes 0.3 us to make one of a number.)
local function find_block(items, at, bytes, groups)
  local columns = {byte(items, at, at + bytes - 1)}
  local a, b, c, d = columns[bytes - 3], columns[bytes - 2], columns[bytes - 1], columns[bytes]
  local hash = a + 256 * b + 65536 * c + 16777216 * d
  for i = 1, #groups do
    local group = groups[i]
    local start = 8 + math.floor(hash * group.blocks / 4294967296) * group.bytes
    group.from, group.to = string.format('%d', start), string.format('%d', start + group.bytes - 1)
    group.bit = string.format('%d', 8 * start + columns[1])
    group.next_bit = group.rows > 1 and string.format('%d', 8 * start + 256 + columns[2]) or group.bit
  end
  return columns
end

-- True if the item's columns are set in a block, from row `first` on.
local function are_set(block, columns, first, rows)
  for row = first, rows do
    local column = columns[row]
    local place_in_byte = column % 8
    local bit = BITS[place_in_byte]
    local bits = byte(block, 32 * row - 31 + (column - place_in_byte) / 8) or 0 -- the part is missing, or cut
    if bits % (2 * bit) < bit then return false end
  end
  return true
end

-- True if the item's bits in a part are set, from the second row on.
local function rest_is_set(part, group, columns)
  return redis.call('GETBIT', part, group.next_bit) == 1
    and are_set(redis.call('GETRANGE', part, group.from, group.to), columns, 3, group.rows)
end

-- The index in KEYS of the first part, other than KEYS[skipped], that holds the item; nil if none does. Most items that a
-- part does not hold show it in the first row.
local function first_with(groups, columns, skipped)
  local call = redis.call
  for i = 1, #groups do
    local group = groups[i]
    local bit = group.bit
    for key = group.first, group.last do
      if key ~= skipped and call('GETBIT', KEYS[key], bit) == 1 and rest_is_set(KEYS[key], group, columns) then
        return key
      end
    end
  end
end

-- The number of items in a part, by its header.
local function items_in(part)
  return redis.call('BITFIELD_RO', part, 'GET', 'u48', '0')[1]
end

-- New items for a part of the group, which may get `capacity` items, and one more if its slice `grows`. Nothing is
-- written before `insert`.
local function new_change(part, group, capacity, grows)
  return {
    part = part,
    group = group,
    capacity = capacity,
    grows = grows,
    items = 0,
    blocks = {},
  }
end

-- The item's block in the part, with the items that are noted.
local function block_of(change)
  local group = change.group
  local block = change.blocks[group.from] or redis.call('GETRANGE', change.part, group.from, group.to)
  local missing = group.bytes - #block
  return missing == 0 and block or block .. string.rep('\0', missing)
end

-- Notes a new item, whose block is given. If it does not fit, notes nothing, and returns the status of the reply: 6
-- where the slice may not grow, else 0.
local function note_new(change, block, columns)
  -- A slice that may grow takes one item in any case.
  if change.items > 0 or not change.grows then
    change.room = change.room or change.capacity - items_in(change.part)
    if change.items >= change.room then return change.grows and 0 or 6 end
  end
  -- The block as numbers of 48 bits, the most that Lua's numbers hold in whole bytes.
  local words, rest = math.floor(change.group.bytes / 6), change.group.bytes % 6
  change.layout = change.layout or '>' .. string.rep('I6', words) .. (rest > 0 and 'I' .. rest or '')
  local numbers = {struct.unpack(change.layout, block)}
  numbers[#numbers] = nil -- the position after the block
  for row = 1, change.group.rows do
    local column = columns[row]
    local place_in_byte = column % 8
    local at = 32 * row - 32 + (column - place_in_byte) / 8
    local place = at % 6
    local word = (at - place) / 6 + 1
    local bit = BITS[place_in_byte] * BYTES[word > words and place + 6 - rest or place]
    local number = numbers[word]
    if number % (2 * bit) < bit then numbers[word] = number + bit end
  end
  change.blocks[change.group.from] = struct.pack(change.layout, unpack(numbers))
  change.items = change.items + 1
end

-- When a part of the register is dropped (ms); 0 for an entry that is not tbloom's. (As in tbloom/bloom/info.py.)
local function expiry_of(register, part, value)
  local tag = string.sub(register, 1, -#'parts' - 1)
  local label = string.sub(part, 1, #tag) == tag and string.match(part, '^(%w+):?%d*$', #tag + 1)
  local is_ours = label and (label == 'all' or string.find(label, '^%d'))
  return is_ours and #value < 16 and tonumber(string.match(value, '^%d+$')) or 0
end

-- Gives a new part its TTL, and enters it into the register. Returns true if the register has it already: the server
-- dropped the part early, with what it held.
local function begin_part(part, register, expires, now)
  drop_at(part, expires)
  local known = redis.pcall('HGETALL', register)
  if known.err then return false end -- another program's key: the part goes without an entry
  local dropped = false
  for i = 1, #known, 2 do
    local part_expires = expiry_of(register, known[i], known[i + 1])
    if part_expires <= now then redis.call('HDEL', register, known[i]) end
    dropped = dropped or (known[i] == part and part_expires > now)
  end
  redis.call('HSET', register, part, expires)
  prolong(register, expires, now)
  return dropped
end

-- Inserts the noted items: adds their number to the part's header, and writes their blocks. The first command also
-- touches the part's last bit, so Redis allocates a new part once, at its full size. A new part also extends
-- the TTL of the parameters and the layout. Returns the number of items in the part, and true if the server had dropped
-- the part early.
local function insert(change, expires, now, register, config_key, layout_key)
  local part, new, group = change.part, change.items, change.group
  local last_bit = 63 + 8 * group.blocks * group.bytes
  local items = redis.call('BITFIELD', part, 'INCRBY', 'u48', '0', new, 'INCRBY', 'u1', last_bit, '0')[1]
  for from, block in pairs(change.blocks) do redis.call('SETRANGE', part, from, block) end
  if items > new then return items, false end
  prolong(config_key, expires, now)
  prolong(layout_key, expires, now)
  return items, begin_part(part, register, expires, now)
end

-- new items for a part: noted one by one, and inserted together (docs/format.md).
--
-- Includes   blocks, keys

-- The characters that were needed, by their bytes.
local CHARACTERS = {}

-- The number of items in a part, by its header.
local function items_in(part)
  return redis.call('BITFIELD_RO', part, 'GET', 'u48', '0')[1]
end

-- New items for a part with blocks of `bytes`, which may get `capacity` items, and one more if its slice `grows`. Nothing
-- is written before `insert`.
local function new_change(part, bytes, capacity, grows)
  return {part = part, bytes = bytes, capacity = capacity, grows = grows, items = 0, blocks = {}, pieces = {}}
end

-- Notes the new item at `at`, whose block begins at `start`. If it does not fit, notes nothing, and returns the status of
-- the reply: 6 where the slice may not grow, else 0.
local function note_new(change, start, block, items, at)
  -- A slice that may grow takes one item in any case.
  if change.items > 0 or not change.grows then
    change.room = change.room or change.capacity - items_in(change.part)
    if change.items >= change.room then return change.grows and 0 or 6 end
  end
  if #block < change.bytes then block = block .. string.rep('\0', change.bytes - #block) end
  local pieces, next_byte, sub = change.pieces, 1, string.sub
  local rows = change.bytes / 32
  for row, column in columns(items, at, rows) do
    local place_in_byte = column % 8
    local bit, place = BITS[place_in_byte], 32 * row - 31 + (column - place_in_byte) / 8
    local bits = byte(block, place)
    if bits % (2 * bit) < bit then bits = bits + bit end
    local character = CHARACTERS[bits]
    if not character then
      character = string.char(bits)
      CHARACTERS[bits] = character
    end
    pieces[2 * row - 1], pieces[2 * row] = sub(block, next_byte, place - 1), character
    next_byte = place + 1
  end
  pieces[2 * rows + 1] = sub(block, next_byte)
  change.blocks[start] = table.concat(pieces)
  change.items = change.items + 1
end

-- Gives a new part its TTL, and enters it into the register, without those that have left; extends the TTL of the
-- parameters and the layout.
local function begin_part(part, register, config_key, layout_key, expires, now)
  prolong(config_key, expires, now)
  prolong(layout_key, expires, now)
  drop_at(part, expires)
  local known = redis.pcall('HGETALL', register)
  if known.err then return end -- another program's key: the part goes without an entry
  for i = 1, #known, 2 do
    if (tonumber(known[i + 1]) or 0) <= now then redis.call('HDEL', register, known[i]) end
  end
  redis.call('HSET', register, part, expires)
  prolong(register, expires, now)
end

-- Inserts the noted items into a part of `part_bytes`: adds their number to its header, and writes their blocks. The first
-- command also touches the part's last bit, so Redis allocates a new part once, at its full size. Returns the number of
-- items in the part.
local function insert(change, part_bytes)
  local part, last_bit = change.part, 8 * part_bytes - 1
  local items = redis.call('BITFIELD', part, 'INCRBY', 'u48', '0', change.items, 'INCRBY', 'u1', last_bit, '0')[1]
  for start, block in pairs(change.blocks) do redis.call('SETRANGE', part, start, block) end
  return items
end

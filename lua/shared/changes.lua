-- new items for a part (docs/format.md).
--
-- Includes   blocks, keys

-- The number of items in a part, by its header.
local function items_in(part)
  return redis.call('BITFIELD_RO', part, 'GET', 'u48', '0')[1]
end

-- The new items of a call, for a part of `bytes` with blocks of `rows`, which may get `capacity` items, and one more if its
-- slice `grows`.
local function new_change(part, bytes, rows, capacity, grows)
  return {part = part, bytes = bytes, rows = rows, capacity = capacity, grows = grows, items = 0}
end

-- Inserts the new item at `at` into its block, which begins at `start`, at once: so a later item of the call reads what this
-- one has written. If it does not fit, writes nothing, and returns the status of the reply: 6 where the slice may not grow,
-- else 0.
local function insert(change, start, block, items, at)
  -- A slice that may grow takes one item in any case.
  if change.items > 0 or not change.grows then
    change.room = change.room or change.capacity - items_in(change.part)
    if change.items >= change.room then return change.grows and 0 or 6 end
  end
  local part, rows, size = change.part, change.rows, WIDTH * change.rows
  if #block < size then -- the part begins: Redis allocates it once, at its full size
    redis.call('SETRANGE', part, change.bytes - 1, '\0')
    block = block .. string.rep('\0', size - #block)
  end
  local bytes, columns, first, last = {byte(block, 1, size)}, {byte(items, at, at + rows - 1)}, nil, nil
  for row = 1, rows do
    local i = columns[row] % 8
    local bit, place = BITS[i], WIDTH * row - WIDTH + 1 + (columns[row] - i) / 8
    if bytes[place] % (2 * bit) < bit then
      bytes[place] = bytes[place] + bit
      first, last = first or place, place
    end
  end
  -- The smallest range of bytes that changes: it goes to the append-only file, and to each replica. There is one, because
  -- the part did not hold the item.
  redis.call('SETRANGE', part, format('%d', start + first - 1), string.char(unpack(bytes, first, last)))
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

-- Counts the items that a call has inserted, in the part's header. Returns the number of items in the part.
local function count_inserted(change)
  return redis.call('BITFIELD', change.part, 'INCRBY', 'u48', '0', change.items)[1]
end

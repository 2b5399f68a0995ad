-- new items for a part (docs/format.md).
--
-- Includes   blocks, keys

-- The new items of a call, for a part of `bytes` with blocks of `rows`, which has `count` items and may get `capacity`.
local function new_change(part, bytes, rows, count, capacity)
  return {part = part, bytes = bytes, rows = rows, room = capacity - count, items = 0}
end

-- Inserts the new item at `at` into its block, which begins at `start`, at once: so a later item of the call reads what this
-- one has written. False: the part is full, and nothing is written.
local function insert(change, start, block, items, at)
  if change.items >= change.room then return false end
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
  return true
end

-- Gives a new part its TTL, and extends that of the filter.
local function begin_part(part, config_key, state, expires, now)
  prolong(config_key, expires, now)
  prolong(state, expires, now)
  drop_at(part, expires)
end

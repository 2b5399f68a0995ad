-- new items for a part (docs/format.md).
--
-- Includes   blocks, keys, lanes, layouts

-- Sets the bits of the new item at `at` in its block, which begins at `start`.
local function insert(part, part_bytes, start, block, items, at, rows)
  local size = WIDTH * rows
  if #block < size then -- the part begins: Redis allocates it once, at its full size
    redis.call('SETRANGE', part, part_bytes - 1, '\0')
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
end

-- Inserts those of the packed items that no part holds into the part KEYS[first], of so many bytes; it may have `capacity`
-- items, and `field` of the state has their number. Returns a character for each item: 1 new, 0 seen; fewer than items: the
-- part is full, and the next item is new. And the number of new items, and that of the part's items before (nil: none is new).
-- An item is written at once, so a later one reads what it has written. Another program's key raises WRONGTYPE before
-- anything is changed, because an item is new only after all parts were read.
local function insert_new(items, item_bytes, sizes, columns, first, part_bytes, capacity, state, field)
  local part, rows, answers, new, count = KEYS[first], byte(sizes), {}, 0, nil
  for at = 1, #items, item_bytes do
    local start = start_at(items, at + columns)
    local block, answer = read_block(part, start, rows), '0'
    if not are_set(block, items, at, rows) and not first_with(sizes, columns, items, at, first, first + 1) then
      count = count or items_in(redis.call('HGET', state, field))
      if count + new >= capacity then break end
      insert(part, part_bytes, start, block, items, at, rows)
      new, answer = new + 1, '1'
    end
    answers[#answers + 1] = answer
  end
  return table.concat(answers), new, count
end

-- Gives a part that begins its TTL, and extends that of the filter; removes some of what has left the window.
local function begin_part(part, config_key, state, expires, oldest, now)
  prolong(config_key, expires, now)
  prolong(state, expires, now)
  drop_at(part, expires)
  sweep(state, oldest, now)
end

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
  redis.call('SETRANGE', part, argument(start + first - 1), string.char(unpack(bytes, first, last)))
end

-- Inserts the packed items that no part holds into the part KEYS[first], which has `part_bytes` bytes, and room for `room` new
-- items. next_new has found the first one, its `start` and its `block`; `at` is nil where there is none. Returns a character
-- for each item: 1 new, 0 seen; fewer than items: the part is full, and the next item is new. And the number of new items.
-- An item is written at once, so a later one reads what it has written.
local function insert_new(at, start, block, items, item_bytes, sizes, columns, first, part_bytes, room)
  local part, rows, answers, new, from = KEYS[first], byte(sizes), {}, 0, 1
  while at and new < room do
    insert(part, part_bytes, start, block, items, at, rows)
    if at > from then answers[#answers + 1] = string.rep('0', (at - from) / item_bytes) end
    answers[#answers + 1], new, from = '1', new + 1, at + item_bytes
    at, start, block = next_new(items, from, item_bytes, sizes, columns, first)
  end
  answers[#answers + 1] = string.rep('0', ((at or #items + 1) - from) / item_bytes)
  return table.concat(answers), new
end

-- Gives the filter's keys a TTL if they lack one; only the part KEYS[first] if `expires` is too early for the others, because KEYS
-- has a newer slice's part.
local function give_ttls(first, config_key, state, expires)
  local keys = {KEYS[first], config_key, state}
  for i = first + 1, #KEYS do
    if KEYS[i] > KEYS[first] then
      keys = {KEYS[first]}
      break
    end
    keys[i - first + 3] = KEYS[i]
  end
  for _, key in ipairs(keys) do
    if lacks_ttl(key, expires) then drop_at(key, expires) end
  end
end

-- After an insert: gives TTLs. With a part that begins, extends those of the filter, and removes some of what has left the window.
local function keep_ttls(first, begins, config_key, state, expires, oldest, now)
  if begins or lacks_ttl(KEYS[first], expires) or lacks_ttl(state, expires) or lacks_ttl(config_key, expires) then
    give_ttls(first, config_key, state, expires)
  end
  if not begins then return end
  extend(config_key, expires, now)
  extend(state, expires, now)
  sweep(state, oldest, now)
end

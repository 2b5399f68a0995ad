-- changes of a part (docs/format.md): new items, and the TTLs of the keys.
--
-- Includes   blocks, chosen, lane_entries, ttls

-- Sets the bits of the new item at `at` in its block, which begins at `start`.
local function insert(part, part_bytes, start, block, items, at, rows)
  local size = WIDTH * rows
  if #block < size then -- a new part: Redis allocates its full size at once
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
  -- Only the range of bytes that changes is written, because it goes to the append-only file and to each replica. The range is
  -- not empty, because the part did not hold the item.
  redis.call('SETRANGE', part, argument(start + first - 1), string.char(unpack(bytes, first, last)))
end

-- Inserts the packed items that no part holds into the part KEYS[first]. The part has `part_bytes` bytes, and room for `room` new
-- items. `at`, `start` and `block` are what next_new has returned for the first new item; `at` is nil if no item is new.
-- Returns a character for each item (1 new, 0 seen), and the number of new items. With fewer characters than items, the part
-- is full, and the next item is new. Each item is written before the next one is looked up, so that a repeated item is seen.
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

-- Gives a TTL to each of the filter's keys that lacks one, because it is new, or another program has removed the TTL; extends
-- those of parameters and state; and removes some old fields of the state. A call that begins a part or a lane does so. If KEYS
-- has a part of a newer slice than KEYS[first], `expires` is too early for the other keys, and only KEYS[first] gets it.
local function maintain(first, config_key, state, expires, oldest, now)
  local keys = {KEYS[first], config_key, state}
  for i = first + 1, #KEYS do
    if KEYS[i] > KEYS[first] then
      keys = {KEYS[first]}
      break
    end
    keys[i - first + 3] = KEYS[i]
  end
  for _, key in ipairs(keys) do
    if lacks_ttl(key, expires) then expire_at(key, expires) end
  end
  extend_ttl(config_key, expires, now)
  extend_ttl(state, expires, now)
  sweep(state, oldest, now)
end

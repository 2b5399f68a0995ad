-- changes of a part (docs/format.md): new items, and the TTLs of the keys.
--
-- Includes   blocks, chosen, lane_entries, ttls

-- Returns the number of items in the chosen part, which begins if it has no bytes: it is new, or the server has dropped it together
-- with its items. `piece` is a piece of it (shared/blocks.lua), or nil if no item is new.
local function count_in(part, part_bytes, piece, state, field)
  if not piece or piece.text ~= '' then return items_in(redis.call('HGET', state, field)) end
  redis.call('SETRANGE', part, part_bytes - 1, '\0') -- Redis allocates its full size at once
  return 0
end

-- Sets the bits of the new item at `at` in its block, which begins at `start` of the part, and after `place` bytes of `text`.
local function insert(part, start, text, place, items, at, rows)
  local size, first, last = WIDTH * rows, nil, nil
  if #text < place + size then text = padded(text, place + size) end
  local bytes = {byte(text, place + 1, place + size)}
  for base = 1, size, 32 do
    local a, i, b, j, c, k, d, l = byte(items, at, at + 7)
    a, b, c, d = base + a, base + 8 + b, base + 16 + c, base + 24 + d
    local w, x, y, z = bytes[a], bytes[b], bytes[c], bytes[d] -- nil after the last row
    if w % (i + i) < i then bytes[a], first, last = w + i, first or a, a end
    if x and x % (j + j) < j then bytes[b], first, last = x + j, first or b, b end
    if y and y % (k + k) < k then bytes[c], first, last = y + k, first or c, c end
    if z and z % (l + l) < l then bytes[d], first, last = z + l, first or d, d end
    at = at + 8
  end
  -- Only the range of bytes that changes is written, because it goes to the append-only file and to each replica. The range is
  -- not empty, because the part did not hold the item.
  redis.call('SETRANGE', part, argument(start + first - 1), string.char(unpack(bytes, first, last)))
end

-- Inserts the items of `pieces` (`unseen` in shared/blocks.lua) into the chosen part, which has room for `room` new items. `begins` is
-- how many bytes of an item precede the place of its block. Returns a character for each item (1 new, 0 seen), and the number of new
-- items. With fewer characters than items, the part is full, and the next item is new. A repeated item is seen.
local function insert_new(pieces, items, item_bytes, begins, part, rows, room)
  -- They are counted, because `#` searches for the end of a table.
  local answers, answered, new, written, step = {}, 0, 0, {}, WIDTH * math.ceil(rows / 2)
  for at = 1, #items, item_bytes do
    local piece = pieces[at]
    if piece then
      local start = start_at(items, at + begins)
      local text, place = piece.text, start - piece.from
      if written[start] or written[start - step] or written[start + step] then -- the piece is older than this change
        local size = WIDTH * rows
        text, place = padded(redis.call('GETRANGE', part, argument(start), argument(start + size - 1)), size), 0
        if block_holds(text, 0, items, at, rows) then piece = nil end
      end
      if piece then
        if new >= room then break end
        insert(part, start, text, place, items, at, rows)
        new, written[start] = new + 1, true
      end
    end
    answered = answered + 1
    answers[answered] = piece and '1' or '0'
  end
  return table.concat(answers), new
end

-- Returns the key of a slice's first part, from that of any part. These compare as the slices do: a label sorts as its time does.
local function slice_of(key)
  return string.match(key, '^.*}:[^:]*')
end

-- Gives a TTL to each of the filter's keys that lacks one, because it is new, or another program has removed the TTL; extends
-- those of parameters and state; and removes some old fields of the state. A call that begins a part or a lane does so. If KEYS
-- has a part of a newer slice than KEYS[first], `expires` is too early for the other keys, and only KEYS[first] gets it.
local function maintain(first, config_key, state, expires, oldest, now)
  local keys = {KEYS[first], config_key, state}
  for i = first + 1, #KEYS do
    if slice_of(KEYS[i]) > slice_of(KEYS[first]) then
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

-- the bits of a slice's parts.
--
-- An item comes as the positions of its bits, one argument each. Parts of another size need other positions: the
-- positions for the first size come first, then those for the next size.

-- Reads which of an item's positions belong to each part. Returns where they begin (from 0 on), their number, and the
-- number of positions that an item has in all.
-- '12': the same 12 for all parts. '0 12 12 14 0 12': beginning and number for the first part, the second, the third.
local function sizes_of(text, parts)
  local begins, counts, stride = {}, {}, 0
  if string.find(text, ' ', 1, true) then
    for begin, count in string.gmatch(text, '(%d+) (%d+)') do
      begin, count = tonumber(begin), tonumber(count)
      begins[#begins + 1], counts[#counts + 1] = begin, count
      if begin + count > stride then stride = begin + count end
    end
  else
    stride = tonumber(text)
    for part = 1, parts do begins[part], counts[part] = 0, stride end
  end
  return begins, counts, stride
end

-- Looks at `count` positions from ARGV[first] on. Returns the index of the first one whose bit is 0 in the part; nil if
-- there is none: the part holds the item.
local function first_zero(part, first, count)
  for i = first, first + count - 1 do
    if redis.call('GETBIT', part, ARGV[i]) == 0 then return i end
  end
end

-- True if any part, from number `part` on, holds the item. KEYS[key] is part 1; the item's positions begin at ARGV[first].
local function is_in_any(key, first, begins, counts, part)
  for i = part, #begins do
    if not first_zero(KEYS[key - 1 + i], first + begins[i], counts[i]) then return true end
  end
  return false
end

-- The number of items in a part, by its header.
local function items_in(part)
  return redis.call('BITFIELD_RO', part, 'GET', 'u48', '0')[1]
end

-- Notes a new item for `insert`: the bits at ARGV[from] to ARGV[to] are to be set in change.part. If the item does not
-- fit, notes nothing, and returns the status of the reply: 6 where the slice may not grow, else 0.
local function note_new(change, from, to)
  local items, words = change.items, change.words
  -- A slice that may grow takes one item in any case.
  if items > 0 or not change.grows then
    local room = change.room or change.capacity - items_in(change.part)
    if items >= room then return change.grows and 0 or 6 end
    change.room = room
  end
  local n = #words
  -- Lua passes at most 8,000 words to a command.
  if n + 4 * (to - from + 1) >= 7900 then return 0 end
  for i = from, to do
    words[n + 1], words[n + 2], words[n + 3], words[n + 4] = 'SET', 'u1', ARGV[i], '1'
    n = n + 4
  end
  change.items = items + 1
end

-- Gives a new part its TTL, and enters it into the register. Returns true if the register has it already: the server
-- dropped the part early, with what it held.
local function begin_part(part, register, expires, now)
  redis.call('PEXPIREAT', part, expires)
  local known = redis.pcall('HGETALL', register)
  if known.err then return false end -- another program's key: the part goes without an entry
  local dropped = false
  for i = 1, #known, 2 do
    local part_expires = tonumber(known[i + 1]) or 0
    if part_expires <= now then redis.call('HDEL', register, known[i]) end
    dropped = dropped or (known[i] == part and part_expires > now)
  end
  redis.call('HSET', register, part, expires)
  prolong(register, expires, now)
  return dropped
end

-- Inserts the noted items: adds their number to the part's header, and sets their bits, in one command. That command
-- also touches the last bit, so Redis allocates a new part once, at its full size; a part that grows bit by bit takes
-- up to twice that. A new part also stores the parameters, or extends their TTL. Returns the number of items in the
-- part, and true if the server had dropped the part early.
local function insert(change, last_position, expires, now, register, config_key, config, stored)
  local part, new = change.part, change.items
  if not stored then keep(config_key, config, expires, now) end
  local items = redis.call(
    'BITFIELD', part, 'INCRBY', 'u48', '0', new, 'INCRBY', 'u1', last_position, '0', unpack(change.words)
  )[1]
  if items > new then return items, false end
  keep(config_key, config, expires, now)
  return items, begin_part(part, register, expires, now)
end

-- the bits of a slice's parts.
--
-- An item comes as the positions of its bits, an argument each: those for parts of one size, then those for parts
-- of another, if there are several sizes.

-- Where an item's positions for each part begin, from 0 on, and how many they are; and how many an item has in all.
-- '12': 12 for all parts. '0 12 12 14 0 12': beginning and number for the first part, the second, the third.
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

-- The index of the first of so many positions, from ARGV[first] on, whose bit is 0 in the part; nil if it holds
-- the item.
local function first_zero(part, first, count)
  for i = first, first + count - 1 do
    if redis.call('GETBIT', part, ARGV[i]) == 0 then return i end
  end
end

-- Whether any part from KEYS[key] on holds the item, whose positions are from ARGV[first] on.
local function is_in_any(key, first, begins, counts, part)
  for i = part, #begins do
    if not first_zero(KEYS[key - 1 + i], first + begins[i], counts[i]) then return true end
  end
  return false
end

local function items_in(part)
  return redis.call('BITFIELD_RO', part, 'GET', 'u48', '0')[1]
end

-- Whether an item's bits can be noted too: Lua passes 8,000 words to a command at most.
local function can_note(words, count)
  return #words + 4 * count < 7900
end

-- Notes the bits of an item that are to be set, in the words of BITFIELD. (Those before ARGV[from] are set already.)
local function note_bits(words, from, to)
  local n = #words
  for i = from, to do
    words[n + 1], words[n + 2], words[n + 3], words[n + 4] = 'SET', 'u1', ARGV[i], '1'
    n = n + 4
  end
end

-- A part that was made just now lives until its slice leaves the window. The register of parts tells whether
-- it had been made before: then the server has dropped it early, with what it held. Returns that.
local function begin_part(part, register, expires, now)
  redis.call('PEXPIREAT', part, expires)
  local known = redis.pcall('HGETALL', register)
  if known.err then return false end -- somebody else's key: we do without
  local dropped = false
  for i = 1, #known, 2 do
    local until_then = tonumber(known[i + 1]) or 0
    if until_then <= now then redis.call('HDEL', register, known[i]) end
    dropped = dropped or (known[i] == part and until_then > now)
  end
  redis.call('HSET', register, part, expires)
  prolong(register, expires, now)
  return dropped
end

-- Counts so many new items in the part's header and sets their bits, in one call. Touching the last bit makes
-- Redis allocate a new part at its full size, once; grown bit by bit it would take up to twice that. With a part the
-- parameters are stored as well, or live on. Returns the count, and whether the server had dropped the part early.
local function insert(part, new, words, last_position, expires, now, register, config_key, config, stored)
  if not stored then keep(config_key, config, expires, now) end
  local items = redis.call(
    'BITFIELD', part, 'INCRBY', 'u48', '0', new, 'INCRBY', 'u1', last_position, '0', unpack(words)
  )[1]
  if items > new then return items, false end
  keep(config_key, config, expires, now)
  return items, begin_part(part, register, expires, now)
end

-- shared: what several scripts do alike. tbloom puts in front of each what it calls of this.
--
-- An item comes as the positions of its bits, an argument each: those for parts of one size, then those for parts
-- of another, if there are several sizes.

-- The server's clock (ms).
local function server_time()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

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

-- Sets a key that lives until the newest slice leaves the window, so its life is only ever prolonged.
-- (A clock set back makes an older slice after a newer one.)
local function keep(key, value, expires, now)
  local left = redis.call('PTTL', key)
  if left < 0 or left < expires - now then
    redis.call('SET', key, value, 'PXAT', expires)
  else
    redis.call('SET', key, value, 'KEEPTTL')
  end
end

-- Has a key that there is live on until then at least.
local function prolong(key, expires, now)
  local left = redis.call('PTTL', key)
  if left < 0 or left < expires - now then redis.call('PEXPIREAT', key, expires) end
end

-- What a script replies where the caller's parameters, or its layout, are not the stored ones; nil where they
-- are. And whether parameters are stored.
local function disagreement(config_key, config, agreed, layout_key, layout)
  local stored = redis.call('GET', config_key)
  if stored and stored ~= config then return {2, stored} end
  if not stored and not agreed then return {4, ''} end
  local stored_layout = redis.call('GET', layout_key) or ''
  if stored_layout ~= layout then return {5, stored_layout} end
  return nil, stored
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

-- A claim's session, its number in the session, of how many slices it was asked, and its note.
local function claim_parts(claim)
  return string.sub(claim, 1, 16), string.sub(claim, 17, 24), string.sub(claim, 25, 28), string.sub(claim, 29)
end

-- The same of an item's claim, if it has one.
local function owner_of(claims, fingerprint)
  local claim = redis.call('HGET', claims, fingerprint)
  if claim then return claim_parts(claim) end
end

local function is_alive(sessions, session, now)
  return (tonumber(redis.call('HGET', sessions, session) or 0) or 0) > now
end

-- Claims and sessions outlive the window if that is short: a session may live longer, and what it leaves be
-- taken over an hour later.
local function keep_claims(claims, sessions, expires, life, now)
  local until_then = math.max(expires, now + math.max(2 * life, 3600000))
  prolong(claims, until_then, now)
  prolong(sessions, until_then, now)
end

-- The answer to this call, if the lane has it; else the number of a later call, if the lane is that far.
local function told_before(lane_key, number)
  local told = redis.call('GET', lane_key)
  if not told then return nil end
  local last, answers = string.match(told, '^(%d+):(%d*)$')
  last = tonumber(last) or 0
  if last == number then return answers end
  return nil, last > number and last or nil
end

-- What a script replies where the caller's parameters are not the stored ones; nil where they are. And those.
local function other_parameters(config_key, config, agreed)
  local stored = redis.call('GET', config_key)
  if stored and stored ~= config then return {2, stored} end
  if not stored and not agreed then return {4, ''} end
  return nil, stored
end

-- Whether a key is not there for so long (ms) any more. One without an end is.
local function ends_before(key, life)
  local left = redis.call('PTTL', key)
  return left ~= -1 and left < life
end

-- Of a layout of buckets, the generation; '' where there is no layout.
local function generation_of(layout_key)
  return redis.call('GETRANGE', layout_key, 0, 15)
end

-- A time (ms) as the entries of a generation have it: from its beginning, because small numbers take less room.
local function since(generation, time)
  return time - math.floor(tonumber(generation) / 1000)
end

-- Whether a bucket has been split in two: the layout has a bit for each that has.
local function is_split(layout_key, bucket)
  return redis.call('GETBIT', layout_key, 128 + bucket) == 1
end

-- Where an item is: the index of the key of its bucket, and the bucket's number. Its keys, from KEYS[first] on, are the
-- bucket that the caller knows, and that one's two halves, of which the item belongs to number half. Nil: elsewhere.
-- If the bucket has been split, that is noted.
local function place(layout_key, first, half, splits)
  local bucket = math.floor(half / 2)
  if bucket > 1 and not is_split(layout_key, math.floor(bucket / 2)) then return nil end
  if not is_split(layout_key, bucket) then return first, bucket end
  if splits[#splits] ~= bucket then splits[#splits + 1] = bucket end
  if not is_split(layout_key, half) then return first + 1 + half % 2, half end
end

-- Of the two halves of a bucket, 0 or 1: the one that an item belongs to. The numbers of buckets are those of a tree:
-- 1, then its halves 2 and 3, then theirs; each level goes by a further one of the fingerprint's last 48 bits.
local function half_of(fingerprint, bucket)
  local a, b, c, d, e, f = string.byte(fingerprint, 11, 16)
  local bits = ((((a * 256 + b) * 256 + c) * 256 + d) * 256 + e) * 256 + f
  local step = 2 ^ 47
  while bucket > 1 do bucket, step = math.floor(bucket / 2), step / 2 end
  return math.floor(bits / step) % 2
end

-- Has a bucket of so many entries live on until after then. A second longer, because PTTL goes by when the script
-- began. If it has no TTL and is not a new one, somebody took it away: it goes when its last entry is swept.
local function keep_bucket(key, entries, expires, now)
  local left, least = redis.call('PTTL', key), expires + 1000 - now
  if left < least and (left >= 0 or entries == 1) then redis.call('PEXPIREAT', key, now + least) end
end

-- Splits the bucket KEYS[at], a sorted set or a hash, into its halves, the two keys after it, and notes that. Nil: one of
-- them is something else.
local function split(layout_key, at, bucket, splits, is_hash)
  for half = 1, 2 do
    if type(redis.pcall(is_hash and 'HLEN' or 'ZCARD', KEYS[at + half])) ~= 'number' then return end
  end
  local entries = is_hash and redis.call('HGETALL', KEYS[at]) or redis.call('ZRANGE', KEYS[at], 0, -1, 'WITHSCORES')
  local words = {{}, {}}
  for i = 1, #entries, 2 do
    local own, fingerprint, value = words[1 + half_of(entries[i], bucket)], entries[i], entries[i + 1]
    local n = #own
    if is_hash then own[n + 1], own[n + 2] = fingerprint, value else own[n + 1], own[n + 2] = value, fingerprint end
  end
  local lives_until = is_hash and -1 or redis.call('PTTL', KEYS[at])
  for half = 1, 2 do
    for i = 1, #words[half], 1000 do
      redis.call(is_hash and 'HSET' or 'ZADD', KEYS[at + half], unpack(words[half], i, math.min(i + 999, #words[half])))
      if lives_until >= 0 then redis.call('PEXPIRE', KEYS[at + half], lives_until) end
    end
  end
  redis.call('UNLINK', KEYS[at])
  redis.call('SETBIT', layout_key, 128 + bucket, 1)
  splits[#splits + 1] = bucket
  return true
end

-- Appends to a list the ids of a chunk that are sorted in a string, two bytes each after a ':': all, or those after
-- the first so many, up to number so many.
local function append_ids(sorted, ids, after, up_to)
  local n, last = #ids, 1 + 2 * (up_to or (#sorted - 1) / 2)
  for from = 2 + 2 * (after or 0), last, 200 do
    local bytes = {string.byte(sorted, from, math.min(from + 199, last))}
    for i = 1, #bytes, 2 do
      n = n + 1
      ids[n] = bytes[i] * 256 + bytes[i + 1]
    end
  end
end

-- How many of the sorted ids, two bytes each after a ':', are less than this one; and whether it is among them.
local function position_of(sorted, low)
  local from, to = 0, (#sorted - 1) / 2
  while from < to do
    local middle = math.floor((from + to) / 2)
    local high_byte, low_byte = string.byte(sorted, 2 + 2 * middle, 3 + 2 * middle)
    local there = high_byte * 256 + low_byte
    if there == low then return middle, true end
    if there < low then from = middle + 1 else to = middle end
  end
  return from, false
end

-- The words of 32 bits, by number, that have just these bits of a bitmap.
local function words_of(ids)
  local words = {}
  for _, id in ipairs(ids) do
    local word = math.floor(id / 32)
    words[word] = (words[word] or 0) + 2 ^ (31 - id % 32)
  end
  return words
end

-- Sets these bits in a bitmap that is new, by words: twice as fast as one by one, and more where they are near.
local function set_bits(key, ids)
  local arguments = {}
  redis.call('SETBIT', key, 65535, 0) -- so that it gets its whole size at once
  for word, value in pairs(words_of(ids)) do
    local n = #arguments
    arguments[n + 1], arguments[n + 2], arguments[n + 3] = 'SET', 'u32', '#' .. word
    arguments[n + 4] = string.format('%.0f', value)
    if n > 3000 then
      redis.call('BITFIELD', key, unpack(arguments))
      arguments = {}
    end
  end
  if #arguments > 0 then redis.call('BITFIELD', key, unpack(arguments)) end
end

-- Whether a text is a whole number, as tbloom writes one.
local function is_number(text)
  return string.find(text, '^%d+$') ~= nil and #text < 17
end

-- How many ids an entry of a directory tells of, and whether they are in it, sorted; nil: it is none of ours.
local function size_of(entry)
  if string.byte(entry) == 58 then
    if #entry % 2 == 1 and #entry <= 8193 then return (#entry - 1) / 2, true end
  elseif is_number(entry) then
    local n = tonumber(entry)
    if n > 4096 and n <= 65536 then return n, false end
  end
end

-- Of a directory of chunks: the numbers of those that are bitmaps, and how many the others are. Most values aren't
-- read: more than 4,096 ids are a number of 4 or 5 digits, and sorted ones may be 8 KB.
local function bitmaps_in(directory)
  local bitmaps, sorted = {}, 0
  for _, field in ipairs(redis.call('HKEYS', directory)) do
    if is_number(field) and #field < 6 then
      local size = redis.call('HSTRLEN', directory, field)
      if (size == 4 or size == 5) and string.byte(redis.call('HGET', directory, field)) ~= 58 then
        bitmaps[#bitmaps + 1] = tonumber(field)
      else
        sorted = sorted + 1
      end
    end
  end
  return bitmaps, sorted
end

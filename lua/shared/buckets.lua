-- the directory of buckets of an exact filter, or of a mapping.
--
-- Includes   none

-- The generation of a layout; '' if there is no layout.
local function generation_of(layout_key)
  return redis.call('GETRANGE', layout_key, 0, 15)
end

-- A time (ms) from the beginning of a generation, as its entries store it: small numbers take less memory.
local function since(generation, time)
  return time - math.floor(tonumber(generation) / 1000)
end

-- The half of its bucket that item number `i` of the packed items belongs to. An item has 20 bytes: 4 for that number,
-- the highest first, and 16 for its fingerprint. (`i` begins at 0.)
local function half_at(items, i)
  local a, b, c, d = string.byte(items, 20 * i + 1, 20 * i + 4)
  return ((a * 256 + b) * 256 + c) * 256 + d
end

-- The fingerprint of item number `i` of the packed items.
local function fingerprint_at(items, i)
  return string.sub(items, 20 * i + 5, 20 * i + 20)
end

-- The directory as a script knows it: `first`, the index in KEYS of the first bucket; `next`, that of the next one to be named,
-- and `named`, that of each by its number; `splits`, the named buckets that have been split; `is_split`, which are, as far as they
-- were asked. What adds entries sets `size`, the command that counts them, `most`, the limit of entries in a bucket, and
-- `last`, the number of the last bucket that may be split.
local function directory_of(layout_key, first)
  return {layout = layout_key, first = first, next = first, named = {}, splits = {}, is_split = {}}
end

-- Whether a bucket has been split.
local function is_split(directory, bucket)
  local known = directory.is_split[bucket]
  if known == nil then known = redis.call('GETBIT', directory.layout, 128 + bucket) == 1 end
  directory.is_split[bucket] = known
  return known
end

-- The index in KEYS of the bucket of item number `i`, and the bucket's number; nil if the bucket is not in KEYS. Each bucket
-- that the client knows is in KEYS once, followed by its two halves, in the order in which the items name it.
local function place(directory, items, i)
  local half = half_at(items, i)
  local bucket = math.floor(half / 2)
  if not directory.named[bucket] then directory.named[bucket], directory.next = directory.next, directory.next + 3 end
  if bucket > 1 and not is_split(directory, math.floor(bucket / 2)) then return nil end
  if not is_split(directory, bucket) then return directory.named[bucket], bucket end
  if directory.splits[#directory.splits] ~= bucket then table.insert(directory.splits, bucket) end
  if not is_split(directory, half) then return directory.named[bucket] + 1 + half % 2, half end
end

-- Whether a bucket takes a further entry. KEYS has no halves of a half, so it can't be split now. It may grow to 1.5 times the
-- limit, which is still compact (a listpack of at most 128 entries); beyond that the client must call again with the half's
-- own halves.
local function has_room(directory, at)
  return at and ((at - directory.first) % 3 == 0 or redis.call(directory.size, KEYS[at]) < 1.5 * directory.most)
end

-- The half of a bucket that an item belongs to, 0 or 1. Bucket 1 has the halves 2 and 3, these have 4, 5, 6 and 7; each
-- level goes by one more of the fingerprint's last 48 bits.
local function half_of(fingerprint, bucket)
  local a, b, c, d, e, f = string.byte(fingerprint, 11, 16)
  local bits = ((((a * 256 + b) * 256 + c) * 256 + d) * 256 + e) * 256 + f
  local step = 2 ^ 47
  while bucket > 1 do bucket, step = math.floor(bucket / 2), step / 2 end
  return math.floor(bits / step) % 2
end

-- Extends a bucket's TTL to one second after its new entry's, because PTTL goes by the time at which the script began. Entries
-- expire `from` ms later than they say (see `since`). A bucket without a TTL is new, or has lost it to another program.
local function keep_bucket(key, expires, from, now)
  local left = redis.call('PTTL', key)
  if left < 0 then expires = redis.call('ZRANGE', key, -1, -1, 'WITHSCORES')[2] end
  local least = from + expires + 1000 - now
  if left < least then redis.call('PEXPIREAT', key, now + least) end
end

-- Splits the bucket KEYS[at], a sorted set or a hash, into its halves, the two keys after it, if it has too many entries;
-- unless one of the halves is of another type.
local function split_if_due(directory, at, bucket)
  if (at - directory.first) % 3 ~= 0 or bucket >= directory.last or redis.call(directory.size, KEYS[at]) <= directory.most then return end
  for half = 1, 2 do
    if type(redis.pcall(directory.size, KEYS[at + half])) ~= 'number' then return end
  end
  local is_hash = directory.size == 'HLEN'
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
  redis.call('SETBIT', directory.layout, 128 + bucket, 1)
  directory.is_split[bucket] = true
  table.insert(directory.splits, bucket)
end

-- the directory of buckets, in which an exact filter or a mapping finds its entries (extendible hashing).
--
-- Includes   none

-- Returns the generation of a layout, or '' if there is no layout.
local function generation_of(layout_key)
  return redis.call('GETRANGE', layout_key, 0, 15)
end

-- Returns a time (ms) counted from the start of a generation. Entries store their times so, because small numbers take less memory.
local function since(generation, time)
  return time - math.floor(tonumber(generation) / 1000)
end

-- Returns the number of the half that item number `i` (from 0) belongs to: its bucket's lower or upper half. A packed item has
-- 20 bytes: 4 for that number, the highest first, and 16 for the fingerprint.
local function half_at(items, i)
  local a, b, c, d = string.byte(items, 20 * i + 1, 20 * i + 4)
  return ((a * 256 + b) * 256 + c) * 256 + d
end

-- Returns the fingerprint of item number `i`.
local function fingerprint_at(items, i)
  return string.sub(items, 20 * i + 5, 20 * i + 20)
end

-- Returns the directory of a script call. Its fields:
--   first     the index in KEYS of the first bucket
--   named     by bucket number: the index in KEYS
--   next      the index in KEYS of the next bucket that an item names
--   splits    the named buckets that have been split
--   is_split  by bucket number: whether it has been split, if that was read
-- Scripts that add entries also set:
--   size      the command that counts the entries of a bucket
--   most      the limit of entries in a bucket
--   last      the number of the last bucket that may be split
local function directory_of(layout_key, first)
  return {layout = layout_key, first = first, next = first, named = {}, splits = {}, is_split = {}}
end

-- Returns true if a bucket has been split.
local function is_split(directory, bucket)
  local split = directory.is_split[bucket]
  if split == nil then split = redis.call('GETBIT', directory.layout, 128 + bucket) == 1 end
  directory.is_split[bucket] = split
  return split
end

-- Returns the index in KEYS of the bucket of item number `i`, and the bucket's number. Returns nil if the bucket is not in KEYS.
-- KEYS has each bucket that the client knows once, in the order in which the items name them, each followed by its two halves.
local function place(directory, items, i)
  local half = half_at(items, i)
  local bucket = math.floor(half / 2)
  if not directory.named[bucket] then directory.named[bucket], directory.next = directory.next, directory.next + 3 end
  if bucket > 1 and not is_split(directory, math.floor(bucket / 2)) then return nil end
  if not is_split(directory, bucket) then return directory.named[bucket], bucket end
  if directory.splits[#directory.splits] ~= bucket then table.insert(directory.splits, bucket) end
  if not is_split(directory, half) then return directory.named[bucket] + 1 + half % 2, half end
end

-- Returns true if a bucket may get another entry. A half can't be split in this call, because KEYS does not have its own halves.
-- It may grow to 1.5 times the limit, which Redis still keeps in its compact form (a listpack of at most 128 entries). Beyond
-- that, the client must call again with the half's own halves.
local function has_room(directory, at)
  return at and ((at - directory.first) % 3 == 0 or redis.call(directory.size, KEYS[at]) < 1.5 * directory.most)
end

-- Returns 0 if an item belongs to the lower half of a bucket, and 1 for the upper half. Bucket 1 has the halves 2 and 3, and
-- these have the halves 4, 5, 6 and 7. Each level uses one more of the fingerprint's last 48 bits.
local function half_of(fingerprint, bucket)
  local a, b, c, d, e, f = string.byte(fingerprint, 11, 16)
  local bits = ((((a * 256 + b) * 256 + c) * 256 + d) * 256 + e) * 256 + f
  local step = 2 ^ 47
  while bucket > 1 do bucket, step = math.floor(bucket / 2), step / 2 end
  return math.floor(bits / step) % 2
end

-- Extends a bucket's TTL to one second after the expiry of its new entry. The second is needed because PTTL uses the time at
-- which the script began. `from` is the start of the generation (see `since`). A bucket without a TTL is new, or another program
-- has removed its TTL.
local function keep_bucket(key, expires, from, now)
  local left = redis.call('PTTL', key)
  if left < 0 then expires = redis.call('ZRANGE', key, -1, -1, 'WITHSCORES')[2] end
  local least = from + expires + 1000 - now
  if left < least then redis.call('PEXPIREAT', key, now + least) end
end

-- Splits the bucket KEYS[at], a sorted set or a hash, if it has too many entries. The two keys after it get its halves. If one of
-- these has another type, the bucket is not split.
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

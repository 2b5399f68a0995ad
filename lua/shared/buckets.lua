-- the tree of buckets of an exact filter, or of a mapping.
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

-- Whether a bucket has been split.
local function is_split(layout_key, bucket)
  return redis.call('GETBIT', layout_key, 128 + bucket) == 1
end

-- The index in KEYS of an item's bucket, and the bucket's number; nil if the bucket is not in KEYS. The item belongs to
-- number half. Each bucket that the client knows is in KEYS once, followed by its two halves, in the order in which the
-- items name it; first_keys has its index, and `next`, that of the next one. If it has been split, it is appended to splits.
local function place(layout_key, first_keys, half, splits)
  local bucket = math.floor(half / 2)
  local first = first_keys[bucket]
  if not first then
    first = first_keys.next
    first_keys[bucket], first_keys.next = first, first + 3
  end
  if bucket > 1 and not is_split(layout_key, math.floor(bucket / 2)) then return nil end
  if not is_split(layout_key, bucket) then return first, bucket end
  if splits[#splits] ~= bucket then splits[#splits + 1] = bucket end
  if not is_split(layout_key, half) then return first + 1 + half % 2, half end
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

-- Extends a bucket's TTL to one second after expires, because PTTL goes by the time at which the script began. A bucket
-- without TTL that is not new has lost it to another program; it goes when its last entry is swept.
local function keep_bucket(key, entries, expires, now)
  local left, least = redis.call('PTTL', key), expires + 1000 - now
  if left < least and (left >= 0 or entries == 1) then redis.call('PEXPIREAT', key, now + least) end
end

-- Splits the bucket KEYS[at], a sorted set or a hash, into its halves, the two keys after it. Nil: one of the halves is
-- of another type.
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

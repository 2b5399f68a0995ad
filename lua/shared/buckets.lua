-- the tree of buckets that the exact store and the mapping of distinct counters keep their entries in.

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

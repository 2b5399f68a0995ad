-- how long keys live.

-- Sets a key, and extends its TTL to `expires`; never shortens it. (A clock that was set back gives an earlier `expires`.)
local function keep(key, value, expires, now)
  local left = redis.call('PTTL', key)
  if left < 0 or left < expires - now then
    redis.call('SET', key, value, 'PXAT', expires)
  else
    redis.call('SET', key, value, 'KEEPTTL')
  end
end

-- Extends a key's TTL to `expires`; never shortens it.
local function prolong(key, expires, now)
  local left = redis.call('PTTL', key)
  if left < 0 or left < expires - now then redis.call('PEXPIREAT', key, expires) end
end

-- True if a key is missing, or is dropped within `life` (ms).
local function ends_before(key, life)
  local left = redis.call('PTTL', key)
  return left ~= -1 and left < life
end

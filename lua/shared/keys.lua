-- how long keys live.
--
-- Includes   none

-- True for the time (ms) of what is never dropped: the slice of a filter without a window.
local function is_never(expires)
  return tonumber(expires) >= 999999999999999
end

-- Sets a key that is dropped at `expires` (ms).
local function set_until(key, value, expires)
  if is_never(expires) then return redis.call('SET', key, value) end
  redis.call('SET', key, value, 'PXAT', expires)
end

-- Gives a key the time (ms) at which it is dropped; returns 1 if there is the key.
local function drop_at(key, expires)
  if not is_never(expires) then return redis.call('PEXPIREAT', key, expires) end
  if redis.call('PTTL', key) >= 0 then redis.call('PERSIST', key) end -- a part that is restored
  return redis.call('EXISTS', key)
end

-- Sets a key, and extends its TTL to `expires`; never shortens it. (A clock that was set back gives an earlier `expires`.)
local function keep(key, value, expires, now)
  local left = redis.call('PTTL', key)
  if left < 0 or left < expires - now then
    set_until(key, value, expires)
  else
    redis.call('SET', key, value, 'KEEPTTL')
  end
end

-- Extends a key's TTL to `expires`; never shortens it.
local function prolong(key, expires, now)
  local left = redis.call('PTTL', key)
  if left < 0 or left < expires - now then drop_at(key, expires) end
end

-- True if a key is missing, or is dropped within `life` (ms).
local function ends_before(key, life)
  local left = redis.call('PTTL', key)
  return left ~= -1 and left < life
end

-- the TTLs of a filter's keys.
--
-- Includes   none

-- The end of the slice of a filter without a window (ms). Its keys never expire.
local FOREVER = 999999999999999

-- Sets the time (ms) at which a key expires. Removes the TTL if the filter has no window.
local function expire_at(key, expires)
  if tonumber(expires) < FOREVER then
    redis.call('PEXPIREAT', key, expires)
  elseif redis.call('PTTL', key) >= 0 then
    redis.call('PERSIST', key) -- a restored part has had a TTL until now
  end
end

-- Returns true if a key should have a TTL but has none: the key is new, or another program has removed the TTL (PERSIST, or
-- RESTORE without a TTL).
local function lacks_ttl(key, expires)
  return expires < FOREVER and redis.call('PTTL', key) == -1
end

-- Extends a key's TTL to `expires`, but never shortens it. (`expires` is earlier than before if the clock was set back.)
local function extend_ttl(key, expires, now)
  local left = redis.call('PTTL', key)
  if left >= 0 and left < expires - now then expire_at(key, expires) end
end

-- Extends a key's TTL to `expires`, or gives it one if it lacks it. The key may be new.
local function give_or_extend_ttl(key, expires, now)
  if lacks_ttl(key, expires) then expire_at(key, expires) else extend_ttl(key, expires, now) end
end

-- how long the keys of a filter live.
--
-- Includes   none

-- When the slice of a filter without a window ends (ms).
local FOREVER = 999999999999999

-- Gives a key the time (ms) at which it is dropped. A filter without a window is never dropped.
local function drop_at(key, expires)
  if tonumber(expires) < FOREVER then
    redis.call('PEXPIREAT', key, expires)
  elseif redis.call('PTTL', key) >= 0 then
    redis.call('PERSIST', key) -- a part that is restored
  end
end

-- Whether a key has no TTL but should: it is new, or another program has removed it (PERSIST, RESTORE without one).
local function lacks_ttl(key, expires)
  return expires < FOREVER and redis.call('PTTL', key) == -1
end

-- Extends a key's TTL to `expires`; never shortens it. (A clock that was set back gives an earlier `expires`.)
local function extend(key, expires, now)
  local left = redis.call('PTTL', key)
  if left >= 0 and left < expires - now then drop_at(key, expires) end
end

-- The same, for a key that may be new.
local function prolong(key, expires, now)
  if lacks_ttl(key, expires) then drop_at(key, expires) else extend(key, expires, now) end
end

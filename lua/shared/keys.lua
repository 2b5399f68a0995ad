-- how long the keys of a filter live.
--
-- Includes   none

-- Gives a key the time (ms) at which it is dropped. A filter without a window is never dropped: its slice ends very late.
local function drop_at(key, expires)
  if tonumber(expires) < 999999999999999 then
    redis.call('PEXPIREAT', key, expires)
  elseif redis.call('PTTL', key) >= 0 then
    redis.call('PERSIST', key) -- a part that is restored
  end
end

-- Extends a key's TTL to `expires`; never shortens it. (A clock that was set back gives an earlier `expires`.)
local function prolong(key, expires, now)
  local left = redis.call('PTTL', key)
  if left < 0 or left < expires - now then drop_at(key, expires) end
end

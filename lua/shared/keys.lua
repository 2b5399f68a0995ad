-- how long keys live.

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

-- Whether a key is not there for so long (ms) any more. One without an end is.
local function ends_before(key, life)
  local left = redis.call('PTTL', key)
  return left ~= -1 and left < life
end

-- shared: what several scripts do alike. tbloom puts this file in front of each of them.
--
-- An item comes as text: the positions of its bits, decimal, separated by spaces; a group for each size that
-- parts have, separated by |. A list of numbers, 1 2 1 ..., says which group belongs to which part.

-- The server's clock (ms).
local function server_time()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

local function number_list(text)
  local numbers = {}
  for number in string.gmatch(text, '%d+') do numbers[#numbers + 1] = tonumber(number) end
  return numbers
end

local function groups_of_item(text)
  local groups = {}
  for group in string.gmatch(text, '[^|]+') do
    local positions = {}
    for position in string.gmatch(group, '%d+') do positions[#positions + 1] = position end
    groups[#groups + 1] = positions
  end
  return groups
end

-- The first of the item's bits that is 0 in the part, or nil if it holds the item.
local function first_zero(part, positions)
  for i = 1, #positions do
    if redis.call('GETBIT', part, positions[i]) == 0 then return i end
  end
end

-- Whether any part from KEYS[first] on holds the item.
local function is_in_any(first, groups, group_of, part)
  for i = part, #group_of do
    if not first_zero(KEYS[first - 1 + i], groups[group_of[i]]) then return true end
  end
  return false
end

local function items_in(part)
  return redis.call('BITFIELD_RO', part, 'GET', 'u48', '0')[1]
end

-- Counts the item in the part's header and sets its bits, in one call; returns the count. Touching the last
-- bit makes Redis allocate a new part at its full size, once; grown bit by bit it would take up to twice that.
local function insert(part, positions, from, last_position)
  local fields = {'INCRBY', 'u48', '0', '1', 'INCRBY', 'u1', last_position, '0'}
  for i = from, #positions do
    local n = #fields
    fields[n + 1], fields[n + 2], fields[n + 3], fields[n + 4] = 'SET', 'u1', positions[i], '1'
  end
  return redis.call('BITFIELD', part, unpack(fields))[1]
end

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

-- What a script replies where the caller's parameters, or its layout, are not the stored ones; nil where they
-- are. And whether parameters are stored.
local function disagreement(config_key, config, agreed, layout_key, layout)
  local stored = redis.call('GET', config_key)
  if stored and stored ~= config then return {2, stored} end
  if not stored and not agreed then return {4, ''} end
  local stored_layout = redis.call('GET', layout_key) or ''
  if stored_layout ~= layout then return {5, stored_layout} end
  return nil, stored
end

-- A part that was made just now lives until its slice leaves the window. The register of parts tells whether
-- it had been made before: then the server has dropped it early, with what it held. Returns that.
local function begin_part(part, register, expires, now)
  redis.call('PEXPIREAT', part, expires)
  local known = redis.pcall('HGETALL', register)
  if known.err then return false end -- somebody else's key: we do without
  local dropped = false
  for i = 1, #known, 2 do
    local until_then = tonumber(known[i + 1]) or 0
    if until_then <= now then redis.call('HDEL', register, known[i]) end
    dropped = dropped or (known[i] == part and until_then > now)
  end
  redis.call('HSET', register, part, expires)
  prolong(register, expires, now)
  return dropped
end

-- A claim's session, its number in the session, of how many slices it was asked, and its note.
local function claim_parts(claim)
  return string.sub(claim, 1, 16), string.sub(claim, 17, 24), string.sub(claim, 25, 28), string.sub(claim, 29)
end

-- The same of an item's claim, if it has one.
local function owner_of(claims, fingerprint)
  local claim = redis.call('HGET', claims, fingerprint)
  if claim then return claim_parts(claim) end
end

local function is_alive(sessions, session, now)
  return (tonumber(redis.call('HGET', sessions, session) or 0) or 0) > now
end

-- Claims and sessions outlive the window if that is short: a session may live longer, and what it leaves be
-- taken over an hour later.
local function keep_claims(claims, sessions, expires, life, now)
  local until_then = math.max(expires, now + math.max(2 * life, 3600000))
  prolong(claims, until_then, now)
  prolong(sessions, until_then, now)
end

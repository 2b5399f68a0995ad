-- claims and the sessions that hold them.

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

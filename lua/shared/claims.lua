-- claims, and the sessions that hold them.

-- The fields of a claim: its session, its number in the session, the slices that were asked, its note.
local function claim_parts(claim)
  return string.sub(claim, 1, 16), string.sub(claim, 17, 24), string.sub(claim, 25, 28), string.sub(claim, 29)
end

-- The fields of an item's claim; nil if it has none.
local function owner_of(claims, digest)
  local claim = redis.call('HGET', claims, digest)
  if claim then return claim_parts(claim) end
end

local function is_alive(sessions, session, now)
  return (tonumber(redis.call('HGET', sessions, session) or 0) or 0) > now
end

-- Extends the TTL of claims and sessions. They outlive a short window: a session may live for longer, and its claims
-- stay for an hour, to be taken over.
local function keep_claims(claims, sessions, expires, life, now)
  local keys_expire = math.max(expires, now + math.max(2 * life, 3600000))
  prolong(claims, keys_expire, now)
  prolong(sessions, keys_expire, now)
end

-- the claims of items, and the sessions that hold them.
--
-- Includes   ttls

-- Returns the fields of a claim: its session, its number in the session, the number of slices that were checked, and its note.
-- Returns nil if the claim is damaged or missing.
local function claim_parts(claim)
  if not claim or #claim < 28 or string.find(string.sub(claim, 1, 28), '%X') then return nil end
  return string.sub(claim, 1, 16), string.sub(claim, 17, 24), string.sub(claim, 25, 28), string.sub(claim, 29)
end

-- Returns the fields of an item's claim, the owner first.
local function owner_of(claims, digest)
  return claim_parts(redis.call('HGET', claims, digest))
end

-- The owner of claims that wait to be taken over.
local NOBODY = string.rep('0', 16)

-- Returns until when a session counts as alive (ms), or 0 if its entry is missing or damaged. A time more than two days ahead is
-- damage: a session lives for at most a day after its last heartbeat, and the clock may have been set back by another day.
local function alive_until(entry, now)
  local until_ms = tonumber(string.match(entry or '', '^%d+$')) or 0
  return until_ms <= now + 172800000 and until_ms or 0
end

-- Writes until when a session counts as alive.
local function keep_alive(sessions, session, until_ms)
  redis.call('HSET', sessions, session, string.format('%.0f', until_ms))
end

-- Returns true if a session counts as alive.
local function is_alive(sessions, session, now)
  return alive_until(redis.call('HGET', sessions, session), now) > now
end

-- Extends the TTLs of claims and sessions. They are kept longer than a short window, because a session may outlive the window,
-- and other sessions have an hour to take over its claims.
local function keep_claims(claims, sessions, expires, life, now)
  local keys_expire = math.max(expires, now + math.max(2 * life, 3600000))
  give_or_extend_ttl(claims, keys_expire, now)
  give_or_extend_ttl(sessions, keys_expire, now)
end

-- Makes other clients search for claims of dead sessions. The key may be new, if the server has lost it; then it gets a TTL.
local function leave_work(sessions, now, expires)
  keep_alive(sessions, NOBODY, now)
  if expires then give_or_extend_ttl(sessions, expires, now) end
end

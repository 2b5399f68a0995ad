-- the claims of items, and the sessions that hold them.
--
-- Includes   keys

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

-- Returns the fields of a session: until when it counts as alive (ms), and its least number. Returns zeros if the entry is missing
-- or damaged. A time more than two days ahead is damage: a session lives for at most a day after its last heartbeat, and the
-- clock may have been set back by another day.
local function session_parts(entry, now)
  local alive_until, least = string.match(entry or '', '^(%d+):(%x+)$')
  alive_until = tonumber(alive_until)
  if not alive_until or #least ~= 8 or alive_until > now + 172800000 then return 0, 0 end
  return alive_until, tonumber(least, 16)
end

-- Returns the entry of a session, as it is stored.
local function session_entry(alive_until, least)
  return string.format('%.0f:%08x', alive_until, least)
end

-- Returns true if a session counts as alive.
local function is_alive(sessions, session, now)
  return session_parts(redis.call('HGET', sessions, session), now) > now
end

-- Extends the TTLs of claims and sessions. They are kept longer than a short window, because a session may outlive the window,
-- and other sessions have an hour to take over its claims.
local function keep_claims(claims, sessions, expires, life, now)
  local keys_expire = math.max(expires, now + math.max(2 * life, 3600000))
  give_or_extend_ttl(claims, keys_expire, now)
  give_or_extend_ttl(sessions, keys_expire, now)
end

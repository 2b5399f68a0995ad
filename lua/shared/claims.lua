-- claims, and the sessions that hold them.
--
-- Includes   keys

-- The fields of a claim: its session, its number in the session, the slices that were asked, its note; nil: damaged, or none.
local function claim_parts(claim)
  if not claim or #claim < 28 or string.find(string.sub(claim, 1, 28), '%X') then return nil end
  return string.sub(claim, 1, 16), string.sub(claim, 17, 24), string.sub(claim, 25, 28), string.sub(claim, 29)
end

-- The fields of an item's claim.
local function owner_of(claims, digest)
  return claim_parts(redis.call('HGET', claims, digest))
end

-- The fields of a session: until when it counts as alive (ms), and the least number of its calls now; zeros if it is
-- missing or damaged. None lives for more than a day without a heartbeat; the clock may have been set back by another.
local function session_parts(entry, now)
  local alive_until, least = string.match(entry or '', '^(%d+):(%x+)$')
  alive_until = tonumber(alive_until)
  if not alive_until or #least ~= 8 or alive_until > now + 172800000 then return 0, 0 end
  return alive_until, tonumber(least, 16)
end

-- The same fields as they are stored.
local function session_entry(alive_until, least)
  return string.format('%.0f:%08x', alive_until, least)
end

local function is_alive(sessions, session, now)
  return session_parts(redis.call('HGET', sessions, session), now) > now
end

-- Extends the TTL of claims and sessions. They outlive a short window: a session may live for longer, and its claims
-- stay for an hour, to be taken over.
local function keep_claims(claims, sessions, expires, life, now)
  local keys_expire = math.max(expires, now + math.max(2 * life, 3600000))
  prolong(claims, keys_expire, now)
  prolong(sessions, keys_expire, now)
end

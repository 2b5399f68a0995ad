-- the claims of items, the sessions that hold them, and the index of left items.
--
-- claims     a hash. Claims and names of fields have no spaces between their words
--   DIGEST -> OWNER CALL [PLACE NOTE]      a claim: its owner (16 characters), the number of the owner's call (8), and, if it has a
--                                          note, the place of this (14)
--     OWNER                                a session; LEFT or BEREFT: nobody, the item is left
--     PLACE = QUEUE DEATHS HOST FAILURES   for whom the note is (8 characters), how many sessions have died of the item (1 digit;
--                                          a BEREFT item has one death more), its host (4 characters), and how often in a row
--                                          the work on it has failed (1 digit)
--     NOTE                                 docs/format.md says how it is packed
--   'h' QUEUE HOST -> SESSION [-]          the owner of a host
--
-- sessions   a hash
--   SESSION -> ALIVE_UNTIL                 (ms)
--   SESSION -> ALIVE_UNTIL QUEUE WAITS_UNTIL    it takes items of this queue, and waits for some until then (0: it does not)
--   SESSION -> ENDED_AT e                  it has ended, and what it had is not left yet
--   'w' QUEUE -> COUNTED_AT WAITING OTHERS how many sessions of the queue waited, and how many others lived (take.lua)
--   'burial' -> CURSOR BEGAN_AT            dead sessions are being buried (bury.lua)
--
-- The owners of hosts are fields of the claims, known by their length. A hash of their own would be a key more of most calls, need a
-- clean-up beside the burial, and be slower to read (a server keeps a small hash as a list). What counts claims by HLEN counts the
-- owners, too. A burial deletes any other field of these two hashes.
--
-- index      a sorted set whose scores are all 0, so that its members are in the order of their bytes
--   QUEUE DEATHS HOST DIGEST               a left item. Those of one queue are together, those with the fewest deaths first
--   QUEUE 9 HOST DIGEST                    no left item: the work on it has failed, and its session still holds it (history.lua)
--
-- If a host begins with '=', one session of a queue owns it at a time: the first one that claims or takes an item of it while it is
-- free. Only the owner takes the host's items; items that other sessions find are left for it. A '-' says that the owner parts with
-- the host: it still works on the items that it has, and claims no new ones.
--
-- Includes   ttls

-- The owner of a left item. LEFT: a session or a program gave it away, which says nothing against the item. BEREFT: its session
-- died, perhaps because of the item, so one death more counts than its place says.
local LEFT, BEREFT = string.rep('0', 16), string.rep('0', 15) .. '1'

-- Returns the fields of a claim: owner, call, place, note. The last two are '' without a note. Returns nil if the claim is
-- damaged or missing.
local function claim_parts(claim)
  if not claim or #claim < 24 or string.find(string.sub(claim, 1, 24), '%X') then return nil end
  return string.sub(claim, 1, 16), string.sub(claim, 17, 24), string.sub(claim, 25, 38), string.sub(claim, 39)
end

-- Returns the fields of an item's claim, the owner first.
local function claim_of(claims, digest)
  return claim_parts(redis.call('HGET', claims, digest))
end

-- Returns the fields of a place: the queue, the deaths, the host, the failures. All are '' without a place. A note may follow it.
local function place_parts(place)
  return string.sub(place, 1, 8), string.sub(place, 9, 9), string.sub(place, 10, 13), string.sub(place, 14, 14)
end

-- Returns the place that has these fields.
local function place_of(queue, deaths, host, failures)
  return queue .. deaths .. host .. failures
end

-- Returns true if nobody owns the item.
local function is_left(owner)
  return owner == LEFT or owner == BEREFT
end

-- Returns how many sessions have died of a left item, as a digit up to 8.
local function deaths_of(owner, place)
  local _, deaths = place_parts(place)
  deaths = tonumber(deaths) or 0
  return tostring(math.min(8, owner == BEREFT and deaths + 1 or deaths))
end

-- Returns the member of the index for an item that is left, or that its session holds although the work has failed.
local function member_of(owner, place, digest)
  local queue, _, host = place_parts(place)
  return queue .. (is_left(owner) and deaths_of(owner, place) or '9') .. host .. digest
end

-- Returns how many members the index has of a queue, from `first` on and before `after`. From '' to ':' are all; from '0=' to '0>'
-- ('>' follows '=') those without deaths whose host has one owner.
local function count_kept(index, queue, first, after)
  return redis.call('ZLEXCOUNT', index, '[' .. queue .. first, '(' .. queue .. after)
end

-- Takes an item out of the index, if it is in there. Call this before its claim changes. Returns whether it was.
local function unindex(index, owner, place, digest)
  return place ~= '' and redis.call('ZREM', index, member_of(owner, place, digest)) == 1
end

-- Returns a note without the failure that history.lua has put at its end, within the last 1500 bytes; and what stands before a
-- failure: a packed note (a line, and the byte 1), or a JSON object without its last character. nil: it can have none.
local function without_failure(note)
  local at = string.find(note, ', "_failed": %[[^%]]*%]}$', math.max(1, #note - 1500))
  if string.find(note, '^[^\n]+\n\1') then
    local packed = string.sub(note, 1, (at or #note + 1) - 1)
    return packed, packed
  end
  if string.sub(note, -1) ~= '}' or string.sub(note, -2) == '{}' then return note, nil end
  local open = string.sub(note, 1, (at or #note) - 1)
  return open .. '}', open
end

-- Makes an item left, and enters it into the index. The note follows its place.
local function leave(claims, index, digest, owner, call, place_and_note)
  redis.call('HSET', claims, digest, owner .. call .. place_and_note)
  redis.call('ZADD', index, 0, member_of(owner, place_and_note, digest))
end

-- Returns the fields of a session's entry: until when it counts as alive (ms; 0 if the entry is missing or damaged), its queue or
-- nil, until when it waits, and whether it has ended. A time more than two days ahead is damage: a session lives for at most a day
-- after its last heartbeat, and the clock may have been set back by another day.
local function session_parts(entry, now)
  entry = entry or ''
  local until_ms = tonumber(string.match(entry, '^%d+')) or 0
  if until_ms > now + 172800000 then until_ms = 0 end
  local queue, waits_until = string.match(entry, '^%d+ (%S+) (%d+)$')
  return until_ms, queue, tonumber(waits_until) or 0, string.sub(entry, -2) == ' e'
end

-- Returns the fields of a count of a queue's sessions: when it was made (ms; 0: it is missing), how many waited, and how many others
-- lived.
local function count_parts(entry)
  local counted_at, waiting, others = string.match(entry or '', '^(%d+) (%d+) (%d+)$')
  return tonumber(counted_at) or 0, tonumber(waiting) or 0, tonumber(others) or 0
end

-- Returns from a count of a queue's sessions how many wait; nil if none does, or something is left that each of them may take.
local function count_waiting(counted, index, queue, now)
  local counted_at, waiting = count_parts(counted)
  -- An older count was made by sessions that have gone.
  if counted_at <= now - 5000 or waiting == 0 then return nil end
  -- Items of hosts with one owner may not be for those that wait.
  local of_hosts = count_kept(index, queue, '0=', '0>') + count_kept(index, queue, '1=', '1>')
  if count_kept(index, queue, '', ':') <= of_hosts then return waiting end
end

-- Writes the entry of a session that lives.
local function keep_session(sessions, session, until_ms, queue, waits_until)
  local more = queue and string.format(' %s %.0f', queue, waits_until) or ''
  redis.call('HSET', sessions, session, string.format('%.0f', until_ms) .. more)
end

-- Returns true if a session counts as alive.
local function is_alive(sessions, session, now)
  return session_parts(redis.call('HGET', sessions, session), now) > now
end

-- Returns the field with the owner of a host, by the queue of a session; nil: the host needs no owner.
local function host_field(queue, host)
  if string.sub(host, 1, 1) == '=' then return 'h' .. queue .. host end
end

-- Returns true if a client that believes in its session, with this entry, has lost it: the entry is missing, or it has expired and a
-- burial is under way. But if there are claims of sessions (which a look at some claims says) and no sessions, the server has lost
-- these (perhaps it has evicted the key), and the living ones come back. (If the look misses the claims, the session leaves its items as
-- after a long silence: some work is done twice, and none is lost.)
local function is_lost(claims, sessions, entry, now)
  if entry then return session_parts(entry, now) <= now and redis.call('HGET', sessions, 'burial') ~= false end
  if redis.call('HLEN', sessions) > 0 then return true end
  local some = redis.call('HRANDFIELD', claims, '8', 'WITHVALUES')
  for i = 1, #some, 2 do
    -- Of sessions that have ended, owners of hosts may be left.
    if #some[i] == 16 and not is_left(claim_parts(some[i + 1]) or LEFT) then return false end
  end
  return true
end

-- Begins a burial (bury.lua).
local function begin_burial(sessions, now)
  redis.call('HSET', sessions, 'burial', string.format('0 %.0f', now))
end

-- Begins a burial if this session is dead and none is under way. Another one takes something of it, so it must not come back.
local function bury_if_dead(sessions, session, now)
  local until_ms, _, _, has_ended = session_parts(redis.call('HGET', sessions, session), now)
  local has_died = until_ms > 0 and until_ms <= now and not has_ended
  if has_died and not redis.call('HGET', sessions, 'burial') then begin_burial(sessions, now) end
end

-- Makes a session the owner of a host that is free. `parted`: also of one with which the session parts. Returns true if it is the
-- owner now.
local function own_host(claims, sessions, field, session, now, parted)
  local owner = redis.call('HGET', claims, field) or ''
  local name = string.sub(owner, 1, 16)
  if owner == session then return true end
  if name ~= session then
    if is_alive(sessions, name, now) then return false end
    bury_if_dead(sessions, name, now)
  elseif not parted then
    return false
  end
  redis.call('HSET', claims, field, session)
  return true
end

-- Extends the TTLs of the claims, the sessions and the index. They are kept longer than a short window, because a session may
-- outlive the window, and other sessions have an hour to take what it leaves.
local function keep_claims(claims, sessions, index, expires, life, now)
  local keys_expire = math.max(expires, now + math.max(2 * life, 3600000))
  for _, key in ipairs({claims, sessions, index}) do give_or_extend_ttl(key, keys_expire, now) end
end

-- Gives a key that is new, perhaps, the TTL of the claims, unless its own is longer.
local function keep_as_long(key, claims, now)
  local left_ms = redis.call('PTTL', claims)
  if left_ms > 0 then give_or_extend_ttl(key, now + left_ms, now) end
end

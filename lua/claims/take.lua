-- take: claim left items of a queue for the client's session, or say that the session waits for some. The session lives on, and
-- begins if need be.
--
-- Includes   calls, chosen, claims, header, lane_entries, lanes
--
-- KEYS[1]    the filter's parameters
-- KEYS[2]    its state (add.lua)
-- KEYS[3]    the claims (shared/claims.lua)
-- KEYS[4]    the sessions that hold claims (shared/claims.lua)
-- KEYS[5]    the index of left items (shared/claims.lua)
--
-- ARGV[1]    the token (shared/lanes.lua)
-- ARGV[2]    the header (shared/header.lua)
-- ARGV[3]    the client's session, 16 characters, and '+' if the server has known it
-- ARGV[4]    how long the session counts as alive without another heartbeat (ms)
-- ARGV[5]    the number of this call in the session, 8 hexadecimal digits; stored with the claims
-- ARGV[6]    the most items to take; may be 0
-- ARGV[7]    the queue, 8 characters
-- ARGV[8]    if the session has nothing else to do: how long it counts as waiting if it gets nothing of its own queue (ms); else '0'
-- ARGV[9]    the queue whose items the session takes from now on, 8 characters; '': as before
-- ARGV[10]   3 characters, at which it begins to look for a host that it may own (shared/claims.lua)
-- ARGV[11]   SUSPECT, a digit
--
-- Reply      {0, {waiting, others, dead, digest, deaths, failures, note, ...}}
--                             waiting, others: how many sessions of the queue wait, and how many others live. 0 where items are
--                             taken. Where items are left, and for a second copy of the call, one lives at least, so that nobody
--                             believes it is over. (What a session holds because it has failed is not left.) dead: 1 if sessions are dead
--                             (bury.lua). For each item: its digest in hexadecimal, the number of sessions that have died of it, how often in a row the work has failed,
--                             and its note
--            {3, number}      the lane has had a later call: this is a stray copy of an answered call; nothing changed
--            {10, ''}         the server does not know the session any more, with its claims; nothing changed
--            {1, now}, {4, ''}, {5, layout, parameters}  refused (shared/header.lua); nothing changed
-- Errors     WRONGTYPE, OOM, READONLY, each before anything is changed
--
-- A second copy of the call gets the items again that the session still holds, without a note if another session has committed one.
--
-- An item of which SUSPECT sessions have died may kill the next one, too. It is taken alone, by a session that has nothing else to
-- do, so that no other item is blamed.

local config_key, state, claims, sessions, index = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local number, lane = read_token(ARGV[1])
local begins, ends, version = read_header(ARGV[2])
local session, life, call, limit, queue = string.sub(ARGV[3], 1, 16), tonumber(ARGV[4]), ARGV[5], tonumber(ARGV[6]), ARGV[7]
local waits_for, own_queue, FIRST_HOST, SUSPECT = tonumber(ARGV[8]), ARGV[9], ARGV[10], ARGV[11]

-- The reply; and for the lane, the digest of each item in hexadecimal, with its deaths.
local reply, taken = {0, 0, 0}, {}

-- Adds an item that the session has to both.
local function add(digest, deaths, place, note)
  local hex = string.gsub(digest, '.', function(byte) return string.format('%02x', string.byte(byte)) end)
  local n, _, _, _, failures = #reply, place_parts(place)
  reply[n + 1], reply[n + 2], reply[n + 3], reply[n + 4] = hex, deaths, failures, note
  taken[#taken + 1] = hex .. deaths
end

-- Adds the items of an earlier copy of the call that the session still has.
local function add_again(answers)
  for hex, deaths in string.gmatch(answers, '(' .. string.rep('%x', 32) .. ')(%x)') do
    local digest = string.gsub(hex, '%x%x', function(byte) return string.char(tonumber(byte, 16)) end)
    local owner, claimed_as, place, note = claim_of(claims, digest)
    if owner == session and claimed_as == call then add(digest, deaths, place, note) end
  end
end

local refused, now, entry = begin_call(state, config_key, number, lane, begins, ends, version)
if refused and refused[1] == 0 then
  add_again(refused[2])
  reply[2] = 1
  return {0, reply}
elseif refused then
  return refused
end

local known = redis.call('HGET', sessions, session)
if #ARGV[3] > 16 and is_lost(claims, sessions, known, now) then return {10, ''} end
local known_until, queue_before, waited_until = session_parts(known, now)
if own_queue == '' then own_queue = queue_before or queue end
redis.call('HLEN', claims)

-- An earlier call's count of the queue's sessions.
local count_field = 'w' .. queue
local counted_at, waiting, others = count_parts(redis.call('HGET', sessions, count_field))

-- Claims a left item.
local function take_one(digest, owner, place, note)
  local deaths = deaths_of(owner, place)
  if deaths >= SUSPECT then
    -- Whoever gives a suspect back, or ends, leaves a suspect.
    local item_queue, _, host, failures = place_parts(place)
    place = place_of(item_queue, deaths, host, failures)
  end
  redis.call('HSET', claims, digest, session .. call .. place .. note)
  add(digest, deaths, place, note)
end

-- Of a host with one owner, EACH items are taken at a time, so that the session gets some of each of its hosts. What a session that works
-- has parted with, it does not take back from those that wait.
local looks, EACH, any_owned = 2000, 10, count_kept(index, queue, '0=', '0>') > 0

-- Takes items whose members in the queue are from `first` on and before `after`, until so many are taken. Members without a left
-- item are removed.
local function take_some(first, after, most)
  local from, field_before, of_host = '[' .. queue .. first, nil, 0
  repeat
    local count = math.min(most - #taken, any_owned and EACH or most)
    local members, gone = redis.call('ZRANGEBYLEX', index, from, '(' .. queue .. after, 'LIMIT', '0', tostring(count)), {}
    for _, member in ipairs(members) do
      local digest = string.sub(member, -16)
      local owner, _, place, note = claim_of(claims, digest)
      local is_valid = is_left(owner) and member_of(owner, place, digest) == member
      local field = is_valid and host_field(own_queue, select(3, place_parts(place)))
      of_host = field == field_before and of_host + 1 or 0
      field_before = field
      if field and (of_host == EACH or not own_host(claims, sessions, field, session, now, waits_for > 0)) then
        from = '(' .. string.sub(member, 1, -17) .. string.rep('\255', 17) -- the next host
        break
      end
      if is_valid then take_one(digest, owner, place, note) end
      gone[#gone + 1] = member
    end
    if #gone > 0 then redis.call('ZREM', index, unpack(gone)) end
    looks = looks - #members - 1
  until #members == 0 or #taken >= most or looks < 0
end

-- Takes the session's share of what is left.
local function take_share()
  local left = count_kept(index, queue, '0', SUSPECT)
  if left == 0 then return end
  -- If the session waits, the others that wait get as many.
  local sharers = waits_for > 0 and math.max(1, waiting) or 1
  local most = math.max(1, math.min(limit, math.ceil(left / sharers)))
  -- Each call begins with another host, because those of other sessions may be many.
  local first = any_owned and '0=' .. FIRST_HOST or '0'
  take_some(first, SUSPECT, most)
  if any_owned and #taken < most then take_some('0', first, most) end
end

-- Keeps the session alive, and notes whether it waits. The count of its queue's sessions is corrected if the session has waited,
-- so that the others that wait still get their share. After any other change, it is forgotten.
local function keep_alive()
  local waits_until = 0
  if #taken == 0 and own_queue ~= queue then waits_until = waited_until end
  if #taken == 0 and own_queue == queue and waits_for > 0 then waits_until = now + waits_for end
  if counted_at > 0 and #taken > 0 and waited_until > 0 and own_queue == queue_before and own_queue == queue then
    redis.call('HSET', sessions, count_field, string.format('%.0f %d %d', counted_at, math.max(0, waiting - 1), others + 1))
  elseif known_until == 0 or own_queue ~= queue_before or (waits_until == 0) ~= (waited_until == 0) then
    redis.call('HDEL', sessions, 'w' .. own_queue)
    counted_at = 0
  end
  keep_session(sessions, session, now + life, own_queue, waits_until)
  if known_until < now + life / 2 then keep_claims(claims, sessions, index, read_chosen(ARGV[2]), life, now) end
end

-- Counts the sessions of the queue, and notes whether any session is dead.
local function count_sessions()
  local all = redis.call('HGETALL', sessions)
  waiting, others = 0, 0
  for i = 1, #all, 2 do
    if #all[i] == 16 then
      local alive_until, its_queue, waits_until = session_parts(all[i + 1], now)
      if alive_until <= now then
        reply[3] = 1
      elseif its_queue == queue and waits_until > now then
        waiting = waiting + 1
      elseif its_queue == queue then
        others = others + 1
      end
    end
  end
  if queue == own_queue then redis.call('HSET', sessions, count_field, string.format('%.0f %d %d', now, waiting, others)) end
end

-- Tells of the other sessions, for a session that gets nothing.
local function tell_of_others()
  -- A count is used for a second, and longer where it took longer.
  if counted_at <= now - 1000 - 2 * (waiting + others) then count_sessions() end
  reply[1], reply[2] = waiting, others
  if count_kept(index, queue, '', '9') > 0 then reply[2] = math.max(1, reply[2]) end
  -- The server may have lost the key of the sessions: this one, which was new to it, stands there alone (with the count), but more is
  -- claimed than is left. A burial leaves what is claimed by sessions that are not there.
  local claimed = redis.call('HLEN', claims) - redis.call('ZCARD', index)
  if known_until == 0 and redis.call('HLEN', sessions) <= 2 and claimed > 0 then reply[3] = 1 end
end

if limit > 0 then take_share() end
if limit > 0 and #taken == 0 and waits_for > 0 then take_some(SUSPECT, '9', 1) end
keep_alive()
if #taken == 0 then tell_of_others() end
redis.call('HSET', state, lane, lane_entry(number, table.concat(taken), now))
if not entry then sweep(state, '', now) end
return {0, reply}

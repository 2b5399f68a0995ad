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
-- ARGV[8]    if the session has nothing else to do: how long it counts as waiting if it gets nothing (ms). '0': it has
-- ARGV[9]    the queue whose items the session takes from now on, 8 characters; '': as before
-- ARGV[10]   3 characters, at which it begins to look for a host that it may own (shared/claims.lua)
-- ARGV[11]   SUSPECT, a digit
--
-- Reply      {0, {waiting, others, dead, digest, deaths, failures, note, ...}}  how many sessions of the queue wait, and how many others live (both
--                             counted within the last second, or longer ago if they are many; 0 where items are taken; one lives at
--                             least where items are left, and for a second copy, so that nobody believes it is over); whether sessions are dead (bury.lua);
--                             for each item its digest in hexadecimal, the number of sessions that have died of it, how often in a row
--                             the work has failed, and its note
--            {3, number}      the lane has had a later call: this is a stray copy of an answered call; nothing changed
--            {10, ''}         the server does not know the session any more, with its claims; nothing changed
--            {1, now}, {4, ''}, {5, layout, parameters}  refused (shared/header.lua); nothing changed
-- Errors     WRONGTYPE, OOM, READONLY, each before anything is changed
--
-- A second copy of the call gets the items again that the session still holds; without a note if another session has committed one. An item of which SUSPECT sessions have died may kill
-- the next one, too. It is taken alone, by a session that has nothing else to do, so that no other item is blamed.

local config_key, state, claims, sessions, index = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local number, lane = read_token(ARGV[1])
local begins, ends, version = read_header(ARGV[2])
local session, life, call, limit, queue = string.sub(ARGV[3], 1, 16), tonumber(ARGV[4]), ARGV[5], tonumber(ARGV[6]), ARGV[7]
local waits_for, own_queue, SUSPECT = tonumber(ARGV[8]), ARGV[9], ARGV[11]

local reply, taken = {0, 0, 0}, {}
local function add(digest, deaths, place, note)
  local hex = string.gsub(digest, '.', function(byte) return string.format('%02x', string.byte(byte)) end)
  local n = #reply
  reply[n + 1], reply[n + 2], reply[n + 3], reply[n + 4] = hex, deaths, string.sub(place, 14), note
  taken[#taken + 1] = hex .. deaths
end

local refused, now, entry = begin_call(state, config_key, number, lane, begins, ends, version)
if refused and refused[1] == 0 then -- an earlier copy was executed
  for hex, deaths in string.gmatch(refused[2], '(' .. string.rep('%x', 32) .. ')(%x)') do
    local digest = string.gsub(hex, '%x%x', function(byte) return string.char(tonumber(byte, 16)) end)
    local owner, claimed_as, place, note = claim_of(claims, digest)
    if owner == session and claimed_as == call then add(digest, deaths, place, note) end
  end
  reply[2] = 1
  return {0, reply}
elseif refused then
  return refused
end

local known = redis.call('HGET', sessions, session)
if #ARGV[3] > 16 and is_lost(claims, sessions, known, now) then return {10, ''} end
local known_until, more = session_parts(known, now)
local tagged, waited_until = queue_parts(more)
if own_queue == '' then own_queue = tagged or queue end
local count_field = 'w' .. queue
local counted_at, waiting, others = string.match(redis.call('HGET', sessions, count_field) or '', '^(%d+) (%d+) (%d+)$')
redis.call('HLEN', claims)

-- Takes items whose members in the queue are from `first` on and before `after`, until so many are taken. Members without a left
-- item are removed. Of a host with one owner, only EACH items are taken, so that the session gets some of each of its hosts.
local looks, EACH = 2000, 10
local any_owned = redis.call('ZLEXCOUNT', index, '[' .. queue .. '0=', '(' .. queue .. '0>') > 0
local function take(first, after, most)
  local from, last, of_last = '[' .. queue .. first, nil, 0
  repeat
    local count = math.min(most - #taken, any_owned and EACH or most)
    local members, gone = redis.call('ZRANGEBYLEX', index, from, '(' .. queue .. after, 'LIMIT', '0', tostring(count)), {}
    for _, member in ipairs(members) do
      local digest = string.sub(member, -16)
      local owner, _, place, note = claim_of(claims, digest)
      local is_valid = is_left(owner) and member_of(owner, place, digest) == member
      local host = is_valid and host_field(own_queue, place)
      of_last = host == last and of_last + 1 or 0
      last = host
      if host and (of_last == EACH or not may_own(claims, sessions, host, session, now, true)) then
        from = '(' .. string.sub(member, 1, 13) .. string.rep('\255', 17) -- the next host
        break
      elseif is_valid then
        local deaths = deaths_of(owner, place)
        -- Whoever gives a suspect back, or ends, leaves a suspect.
        if deaths >= SUSPECT then place = string.sub(place, 1, 8) .. deaths .. string.sub(place, 10) end
        redis.call('HSET', claims, digest, session .. call .. place .. note)
        if host then own_host(claims, sessions, host, session, now) end
        add(digest, deaths, place, note)
      end
      gone[#gone + 1] = member
    end
    if #gone > 0 then redis.call('ZREM', index, unpack(gone)) end
    looks = looks - #members - 1
  until #members == 0 or #taken >= most or looks < 0
end

local left = redis.call('ZLEXCOUNT', index, '[' .. queue .. '0', '(' .. queue .. SUSPECT)
if left > 0 and limit > 0 then
  -- The others that wait get as many.
  local sharers = waits_for > 0 and math.max(1, tonumber(waiting) or 1) or 1
  local most = math.max(1, math.min(limit, math.ceil(left / sharers)))
  -- Each call begins with another host, because those of other sessions may be many.
  local begin = any_owned and '0=' .. ARGV[10] or '0'
  take(begin, SUSPECT, most)
  if any_owned and #taken < most then take('0', begin, most) end
end
if #taken == 0 and limit > 0 and waits_for > 0 then take(SUSPECT, '9', 1) end

local waits_until = #taken == 0 and waits_for > 0 and now + waits_for or 0
if counted_at and #taken > 0 and waited_until > 0 and own_queue == tagged and own_queue == queue then
  -- It waits no longer, and the others that wait still get their share.
  redis.call('HSET', sessions, count_field, string.format('%s %d %d', counted_at, math.max(0, waiting - 1), others + 1))
elseif known_until == 0 or own_queue ~= tagged or (waits_until == 0) ~= (waited_until == 0) then
  redis.call('HDEL', sessions, 'w' .. own_queue)
  counted_at = nil
end
keep_session(sessions, session, now + life, string.format(' %s %.0f', own_queue, waits_until))
if known_until < now + life / 2 then keep_claims(claims, sessions, index, read_chosen(ARGV[2]), life, now) end

if #taken == 0 then
  -- A count is used for a second, and longer where it took longer.
  if not (counted_at and tonumber(counted_at) > now - 1000 - 2 * (waiting + others)) then
    waiting, others = 0, 0
    local all, dead, tag = redis.call('HGETALL', sessions), 0, ' ' .. queue .. ' '
    for i = 1, #all, 2 do
      if #all[i] == 16 then
        -- Most entries are of this form. Patterns would take several times as long.
        local value, alive_until, wait_ends = all[i + 1], nil, nil
        if string.sub(value, 14, 23) == tag then
          alive_until, wait_ends = tonumber(string.sub(value, 1, 13)), tonumber(string.sub(value, 24))
        end
        if not (alive_until and wait_ends) then alive_until = session_parts(value, now) end
        if alive_until <= now then
          dead = 1
        elseif wait_ends and wait_ends > now then
          waiting = waiting + 1
        elseif wait_ends then
          others = others + 1
        end
      end
    end
    local count = string.format('%.0f %d %d', now, waiting, others)
    if queue == own_queue then redis.call('HSET', sessions, count_field, count) end
    reply[3] = dead
  end
  reply[1], reply[2] = tonumber(waiting) or 0, tonumber(others) or 0
  if redis.call('ZLEXCOUNT', index, '[' .. queue, '(' .. queue .. ':') > 0 then reply[2] = math.max(1, reply[2]) end
  -- The server may have lost sessions whose claims nobody knows of.
  local lost = redis.call('HLEN', claims) - redis.call('ZCARD', index)
  if known_until == 0 and redis.call('HLEN', sessions) <= 2 and lost > 0 then reply[3] = 1 end
end
redis.call('HSET', state, lane, lane_entry(number, table.concat(taken), now))
if not entry then sweep(state, '', now) end
return {0, reply}

-- claim: claim the items that are new and that no living session has claimed, for the client's session; or leave them to any
-- session.
--
-- Includes   blocks, calls
--
-- KEYS[1]    the filter's parameters
-- KEYS[2]    its state (add.lua)
-- KEYS[3]    the claims (shared/claims.lua)
-- KEYS[4]    the sessions that hold claims (shared/claims.lua)
-- KEYS[5]    the index of left items (shared/claims.lua)
-- KEYS[6..]  all parts of live slices, grouped by part size; the newest first in a group
--
-- ARGV[1]    the token (shared/lanes.lua)
-- ARGV[2]    the header (shared/header.lua)
-- ARGV[3]    the client's session, 16 characters, and '+' if the server has known it. LEFT (shared/claims.lua): new items are left,
--            and each needs a note
-- ARGV[4]    how long the session counts as alive without another heartbeat (ms)
-- ARGV[5]    the items (shared/blocks.lua), each followed by its digest, 16 bytes; the digests are distinct
-- ARGV[6]    the number of this call in the session, 8 hexadecimal digits; stored with the claims
-- ARGV[7]    for each item, the number of the session's last earlier call whose claim this call replaces, because nobody works on
--            the item; 8 hexadecimal digits, 0 for none. '': 0 for all. '*', with LEFT: seen items are left, too
-- ARGV[8..]  the place and the note of each item, stored with its claim; '': none. May be missing
--
-- Reply      {0, answers}     a character per item: 1 new, and now claimed (or left); 0 seen; 2 claimed by a living session (or
--                             left before), or now left to the owner of its host
--            {3, number}      the lane has had a later call: this is a stray copy of an answered call; nothing changed
--            {10, ''}         the server does not know the session any more, with its claims; nothing changed. (What is seen
--                             is seen for all: a call of seen items only gets its answers.)
--            {1, now}, {4, ''}, {5, layout, parameters}  refused (shared/header.lua); nothing changed
-- Errors     WRONGTYPE, OOM, READONLY, each before anything is changed
--
-- An item of the queue on which the work has failed, or of which a session has died, stays left to "take", which tells of that. If it has
-- failed, its note becomes that of this call, behind the first line, in which a crawl has the version for which it was claimed.

local config_key, state, claims, sessions, index, FIRST_PART = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], 6
local number, lane = read_token(ARGV[1])
local begins, ends, version, column_bytes, sizes = read_header(ARGV[2])
local session, life, items, call, replaced, FIRST_NOTE = string.sub(ARGV[3], 1, 16), tonumber(ARGV[4]), ARGV[5], ARGV[6], ARGV[7], 8
local item_bytes, is_again = column_bytes + 4 * #sizes / 3 + 16, replaced == '*'

local refused, now, entry = begin_call(state, config_key, number, lane, begins, ends, version)
if refused then return refused end

local is_unseen = unseen(items, item_bytes, sizes, column_bytes, FIRST_PART)
-- A resent call finds the same answers, so the lane need not keep them.
if not next(is_unseen) and not is_again then return {0, string.rep('0', #items / item_bytes)} end

-- Calls with seen items only have returned above, and need none of these functions (add.lua).
-- Includes   chosen, claims, lane_entries
redis.call('HLEN', claims)
redis.call('ZCARD', index)
local known = redis.call('HGET', sessions, session)
if #ARGV[3] > 16 and is_lost(claims, sessions, known, now) then return {10, ''} end
local known_until, queue, waits_until = session_parts(known, now)
local leaves, any_changed = session == LEFT, false

-- Returns true if an item that has an owner is free all the same: it is left, or its session is dead, and the sessions of the queue have
-- neither died of it nor failed. (What is left can't be left again.)
local function is_free_from(owner, place)
  if is_left(owner) then
    if leaves then return false end
  else
    local until_ms, _, _, has_ended = session_parts(redis.call('HGET', sessions, owner), now)
    if until_ms > now then return false end
    owner = has_ended and LEFT or BEREFT -- as bury.lua will leave it
  end
  local its_queue, _, _, failures = place_parts(place)
  return its_queue ~= queue or deaths_of(owner, place) .. failures == '00'
end

-- Gives a left item on which the work has failed the note of this call, unless that lacks a version, and the item's own note has one.
local function renew_note(digest, owner, place, note, new)
  local line, new_line = string.match(note, '^[^\n]*'), string.match(new, '^[^\n]*', 15)
  local queue, deaths, _, failures = place_parts(place)
  if failures == '0' or string.find(line, ' v') and not string.find(new_line, ' v') then return end
  unindex(index, owner, place, digest)
  place = place_of(queue, deaths, select(3, place_parts(new)), failures)
  leave(claims, index, digest, owner, call, place .. line .. string.sub(new, 15 + #new_line))
  any_changed = true
end

-- Claims that are written together: replicas and the append-only file get the command and the key's name once. (A call has fewer than
-- 1,000 items.)
local made = {}

-- Claims an item that was not seen, or leaves it, unless it has an owner from whom it is not free. Returns its answer. `replaces`:
-- the last call whose claim this call replaces.
local function claim_one(digest, note, replaces)
  local owner, claimed_as, place, old_note = claim_of(claims, digest)
  local is_own = owner == session and claimed_as <= replaces
  local note_queue, _, note_host = place_parts(note)
  if owner and not is_own and not is_free_from(owner, place) then
    if not leaves and is_left(owner) and note_queue == queue then renew_note(digest, owner, place, old_note, note) end
    return '2'
  end

  local field = not leaves and not is_own and note_queue == queue and host_field(queue, note_host)
  local is_others = field and not own_host(claims, sessions, field, session, now)
  -- It is left in the queue already, for the owner of the host.
  if is_others and is_left(owner) and place_parts(place) == queue then return '2' end

  any_changed = true
  if owner then unindex(index, owner, place, digest) end
  if owner and not is_own then bury_if_dead(sessions, owner, now) end
  if leaves or is_others then
    leave(claims, index, digest, LEFT, call, note)
  else
    made[#made + 1], made[#made + 2] = digest, session .. call .. note
  end
  return is_others and '2' or '1'
end

local answers = {}
for at = 1, #items, item_bytes do
  local answered, answer = #answers, '0'
  if is_again or is_unseen[at] then
    local digest = string.sub(items, at + item_bytes - 16, at + item_bytes - 1)
    answer = claim_one(digest, ARGV[FIRST_NOTE + answered] or '', string.sub(replaced, 8 * answered + 1, 8 * answered + 8))
  end
  answers[answered + 1] = answer
end
answers = table.concat(answers)
if #made > 0 then redis.call('HSET', claims, unpack(made)) end

if any_changed then
  local waits = waits_until > 0
  if waits then redis.call('HDEL', sessions, 'w' .. queue) end
  if not leaves and (waits or known_until < now + life / 2) then
    keep_session(sessions, session, now + life, queue, 0)
  end
  keep_claims(claims, sessions, index, read_chosen(ARGV[2]), life, now)
end
-- A claim that another session holds now may end before the call is resent.
redis.call('HSET', state, lane, lane_entry(number, answers, now))
if not entry then sweep(state, '', now) end
return {0, answers}

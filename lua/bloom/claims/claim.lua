-- claim: claim the items that are new and that no living session has claimed, for the client's session.
--
-- Includes   blocks, header, claims
--
-- KEYS[1]    the filter's parameters
-- KEYS[2]    its state (add.lua)
-- KEYS[3]    the claims: digest -> session, number, slices, note
-- KEYS[4]    the sessions that hold claims: name -> until when it counts as alive (ms), and its least number
-- KEYS[5..]  all parts of live slices, grouped by part size; the newest first in a group
--
-- ARGV[1]    the header (shared/header.lua)
-- ARGV[2]    the client's session, 16 characters
-- ARGV[3]    how long the session counts as alive without another heartbeat (ms)
-- ARGV[4]    the session's least number, 8 hexadecimal digits: no later call of the session has a lower one
-- ARGV[5]    the number of newest slices that are checked, 4 hexadecimal digits; stored with the claims
-- ARGV[6]    the previous owner: the session that has handed these items over; '': none
-- ARGV[7]    the items (shared/blocks.lua), each followed by its digest, 16 bytes
-- ARGV[8]    the number of this call in the session, 8 hexadecimal digits
-- ARGV[9]    for each item, the number of the session's first call that may have claimed it without anybody's knowledge: this
--            call replaces a claim by that call or a later one; 8 hexadecimal digits. '': this call's number for all
-- ARGV[10..] a note for each item, stored with its claim; may be missing
--
-- Reply      {0, answers}     a character per item: 1 new, and now claimed; 0 seen; 2 claimed by a living session
--            {3, least}       this call's number is below the session's least number, so this is a late copy; nothing changed
--            {1, now}, {4, ''}, {5, layout, parameters}  refused (shared/header.lua); nothing changed
-- Errors     WRONGTYPE, OOM, READONLY, each before anything is changed
--
-- A second copy of the call gets the same answers, because the claims have its number. Once the client has a reply, or has
-- given up, it sends a higher least number, and a later copy is refused.

local config_key, state, claims, sessions, FIRST_PART = KEYS[1], KEYS[2], KEYS[3], KEYS[4], 5
local begins, ends, expires, _, _, columns, version, _, _, sizes = read_header(ARGV[1])
local session, life, within, previous_owner = ARGV[2], tonumber(ARGV[3]), ARGV[5], ARGV[6]
local items, number, first_calls, FIRST_NOTE = ARGV[7], ARGV[8], ARGV[9], 10
local item_bytes = columns + 4 * #sizes / 3 + 16

local now, refused = refusal(begins, ends, redis.call('HGET', state, 'layout'), version, config_key)
if refused then return refused end

local alive_until, least = session_parts(redis.call('HGET', sessions, session), now)
if tonumber(number, 16) < least then return {3, least} end
redis.call('HLEN', claims)

local answers, any_new = {}, false
for at = 1, #items, item_bytes do
  local answer = '0'
  if not first_part_with(sizes, columns, items, at, FIRST_PART, FIRST_PART) then
    local digest = string.sub(items, at + item_bytes - 16, at + item_bytes - 1)
    local note = ARGV[FIRST_NOTE + #answers] or ''
    local owner, claimed_as = owner_of(claims, digest)
    local first = first_calls == '' and number or string.sub(first_calls, 8 * #answers + 1, 8 * #answers + 8)
    local again = owner == session and first <= claimed_as and claimed_as <= number
    if not owner or again or owner == previous_owner or not is_alive(sessions, owner, now) then
      answer, any_new = '1', true
      redis.call('HSET', claims, digest, session .. number .. within .. note)
    else
      answer = '2'
    end
  end
  answers[#answers + 1] = answer
end

if any_new then
  if alive_until < now + life / 2 then
    redis.call('HSET', sessions, session, session_entry(now + life, math.max(least, tonumber(ARGV[4], 16))))
  end
  keep_claims(claims, sessions, expires, life, now)
end
return {0, table.concat(answers)}

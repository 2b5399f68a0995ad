-- claim: which of these items are new, and claimed by no living session? Claims them for the client's session.
--
-- Includes   blocks, claims, clock, parameters
--
-- KEYS[1]    the filter's parameters
-- KEYS[2]    the layout (shared/layouts.lua)
-- KEYS[3]    the claims: digest -> session, number, slices, note
-- KEYS[4]    the sessions that hold claims -> until when each counts as alive (ms), and its least number
-- KEYS[5..]  all parts of live slices, the newest first of those of one size
--
-- ARGV[1]    the client's parameters
-- ARGV[2]    when the client believes that the current slice begins (ms)
-- ARGV[3]    when it ends (ms)
-- ARGV[4]    when it leaves the window (ms)
-- ARGV[5]    1: the parameters may be stored where there are none; 0: they must be agreed on first (open.lua)
-- ARGV[6]    the version of the client's layout; '': it knows of none
-- ARGV[7]    the sizes of the parts from KEYS[5] on (groups_of in shared/blocks.lua)
-- ARGV[8]    the client's session, 16 characters
-- ARGV[9]    how long it counts as alive without another heartbeat (ms)
-- ARGV[10]   the session's least number, 8 hexadecimal digits: its calls from now on have this one or a higher one
-- ARGV[11]   the number of newest slices that are asked, 4 characters; kept with the claims
-- ARGV[12]   the previous owner: a session that has handed these items over; '': none
-- ARGV[13]   the items (groups_of in shared/blocks.lua), each with its digest behind it, 16 bytes
-- ARGV[14]   the number of this call of the session, 8 hexadecimal digits
-- ARGV[15..] for each item a note to keep with the claim; may be missing
--
-- Reply      {0, answers}     a character per item: 1 new, and now claimed; 0 seen; 2 claimed by a living session
--            {1, now}         the server's clock (ms) is not within ARGV[2..3]; nothing changed
--            {2, parameters}  the filter is stored with other parameters; nothing changed
--            {3, least}       the session's calls have higher numbers now: this is a late copy; nothing changed
--            {4, ''}          no parameters are stored, and the client has not agreed on them; nothing changed
--            {5, layout}      as for add.lua
-- Errors     WRONGTYPE, OOM, READONLY, each before anything is changed
--
-- A second copy of the call gets the same answers, because its claims have the same number, until the client has its
-- reply, or gives up, and another call says so.

local config_key, layout_key, claims, sessions, FIRST_PART = KEYS[1], KEYS[2], KEYS[3], KEYS[4], 5
local config, begins, ends, expires = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local agreed, version = ARGV[5] == '1', ARGV[6]
local groups, packed_bytes = groups_of(ARGV[7], FIRST_PART)
local session, life, within, previous_owner = ARGV[8], tonumber(ARGV[9]), ARGV[11], ARGV[12]
local items, number, FIRST_NOTE = ARGV[13], ARGV[14], 15

local now = server_time()
if now < begins or now >= ends then return {1, now} end

local reply = change_refusal(config_key, config, agreed, layout_key, version, expires, now)
if reply then return reply end

local alive_until, least = session_parts(redis.call('HGET', sessions, session), now)
if tonumber(number, 16) < least then return {3, least} end
redis.call('HLEN', claims)

local answers, any_new = {}, false
for at = 1, #items, packed_bytes + 16 do
  local answer = '0'
  if not first_with(groups, items, at) then
    local digest = string.sub(items, at + packed_bytes, at + packed_bytes + 15)
    local note = ARGV[FIRST_NOTE + #answers] or ''
    local owner, claimed_as = owner_of(claims, digest)
    local again = owner == session and claimed_as == number
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
    redis.call('HSET', sessions, session, session_entry(now + life, math.max(least, tonumber(ARGV[10], 16))))
  end
  keep_claims(claims, sessions, expires, life, now)
end
return {0, table.concat(answers)}

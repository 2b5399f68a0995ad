-- claim: which of these items are new, and nobody works on? They are the caller's to work on then.
--
-- KEYS[1]    the filter's parameters
-- KEYS[2]    the layout: the parts of those slices that have not just the one that every slice begins with
-- KEYS[3]    the claims: fingerprint -> session, number, slices, note
-- KEYS[4]    the sessions that hold claims -> until when each counts as alive (ms)
-- KEYS[5..]  all parts of live slices, newest first
--
-- ARGV[1]    the parameters that the caller works with
-- ARGV[2]    when the current slice begins, as the caller believes (ms)
-- ARGV[3]    when it ends (ms)
-- ARGV[4]    when it leaves the window (ms)
-- ARGV[5]    1: without parameters the filter is empty; 0: they may be elsewhere (open.lua)
-- ARGV[6]    the layout that the caller knows
-- ARGV[7]    which of an item's positions belong to each part from KEYS[5] on (sizes_of in shared/parts.lua)
-- ARGV[8]    the caller's session, 16 characters
-- ARGV[9]    for how long it counts as alive without another sign of life (ms)
-- ARGV[10]   of how many slices the newest are asked, 4 characters: for whoever takes the claims over
-- ARGV[11]   a session that hands these items over; '': none
-- ARGV[12..] for each item its fingerprint, the number of the call that claims it, 8 characters, a note to keep
--            with the claim, and its positions
--
-- Reply      {0, answers}     a character per item: 1 new, and claimed; 0 seen; 2 busy: a living session claims it
--            {1, now}         the server's clock (ms) is not within ARGV[2..3]; nothing changed
--            {2, parameters}  the filter is stored with others; nothing changed
--            {4, ''}          no parameters are stored here, and the caller has not compared them; nothing changed
--            {5, layout}      the layout is another one; nothing changed
-- Errors     WRONGTYPE, OOM, READONLY, all of them before anything is changed
--
-- Sent again, it gives the same answer, because the claim has the same number.

local config_key, layout_key, claims, sessions, FIRST_PART = KEYS[1], KEYS[2], KEYS[3], KEYS[4], 5
local config, begins, ends, expires = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local agreed, layout = ARGV[5] == '1', ARGV[6]
local begins_at, counts, stride = sizes_of(ARGV[7], #KEYS - FIRST_PART + 1)
local session, life, within, giver, FIRST_ITEM = ARGV[8], tonumber(ARGV[9]), ARGV[10], ARGV[11], 12

local now = server_time()
if now < begins or now >= ends then return {1, now} end

local reply = disagreement(config_key, config, agreed, layout_key, layout)
if reply then return reply end

local alive_until = tonumber(redis.call('HGET', sessions, session) or 0)
redis.call('HLEN', claims)

local answers, any_new = {}, false
for item = FIRST_ITEM, #ARGV, 3 + stride do
  local fingerprint, number, note = ARGV[item], ARGV[item + 1], ARGV[item + 2]
  local answer = '0'
  if not is_in_any(FIRST_PART, item + 3, begins_at, counts, 1) then
    local owner, claimed_as = owner_of(claims, fingerprint)
    local again = owner == session and claimed_as == number
    if not owner or again or owner == giver or not is_alive(sessions, owner, now) then
      answer, any_new = '1', true
      redis.call('HSET', claims, fingerprint, session .. number .. within .. note)
    else
      answer = '2'
    end
  end
  answers[#answers + 1] = answer
end

if any_new then
  if alive_until < now + life / 2 then redis.call('HSET', sessions, session, now + life) end
  keep_claims(claims, sessions, expires, life, now)
end
return {0, table.concat(answers)}

-- history: change what claims of the session say of the past of their items, and for which queue these are. Their notes stay.
--
-- Includes   claims
--
-- KEYS[1]    the claims (shared/claims.lua)
--
-- ARGV[1]    the client's session, 16 characters
-- ARGV[2]    the number of this call in the session, 8 hexadecimal digits; stored with the claims
-- ARGV[3]    for each item, its digest (16 bytes), the queue (8 characters), the number of sessions that have died of it (1 digit),
--            and how often in a row the work on it has failed (1 digit)
--
-- Reply      {0, answers}     a character per item: 1 its claim was changed; 0 the session has no claim with a note on it, or a
--                             later one
-- Errors     WRONGTYPE, OOM, READONLY, each before anything is changed
--
-- A late copy of the call changes nothing, because what the session does later with a claim has higher numbers.

local claims, session, call, histories, answers = KEYS[1], ARGV[1], ARGV[2], ARGV[3], {}

for at = 1, #histories, 26 do
  local digest = string.sub(histories, at, at + 15)
  local owner, claimed_as, place, note = claim_of(claims, digest)
  local changes = owner == session and claimed_as <= call and place ~= ''
  if changes then
    local queue_and_deaths, failures = string.sub(histories, at + 16, at + 24), string.sub(histories, at + 25, at + 25)
    place = queue_and_deaths .. string.sub(place, 10, 13) .. failures
    redis.call('HSET', claims, digest, session .. call .. place .. note)
  end
  answers[#answers + 1] = changes and '1' or '0'
end
return {0, table.concat(answers)}

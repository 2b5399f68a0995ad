-- release: nobody works on these items any more, and they were not done. They are as if never claimed.
--
-- KEYS[1]    the claims: fingerprint -> session, number, note
-- KEYS[2]    the sessions that hold claims -> until when each counts as alive (ms)
--
-- ARGV[1]    the caller's session, 16 characters
-- ARGV[2]    1: a claim with a note becomes an abandoned one, for somebody to take over; 0: it goes
-- ARGV[3..]  two for each item: its fingerprint, and the number of the claim, 8 characters; '': whatever it is
--
-- Reply      {0, answers}     a character per item: 1 released, 0 a living session, or a later claim, has it
-- Errors     WRONGTYPE, READONLY, before anything is changed
--
-- Sent again, it finds nothing to release: what the session has claimed meanwhile has another number.

local claims, sessions = KEYS[1], KEYS[2]
local session, abandon, FIRST_ITEM = ARGV[1], ARGV[2] == '1', 3
local NOBODY = string.rep('0', 16)
local now = server_time()
redis.call('HLEN', sessions)

local answers = {}
for item = FIRST_ITEM, #ARGV, 2 do
  local fingerprint, number = ARGV[item], ARGV[item + 1]
  local owner, claimed_as, note = owner_of(claims, fingerprint)
  local ours = owner == session and (number == '' or number == claimed_as)
  local gone = owner and owner ~= session and not is_alive(sessions, owner, now)
  if ours and abandon and note ~= '' then
    redis.call('HSET', claims, fingerprint, NOBODY .. claimed_as .. note)
    -- A dead session, so that somebody looks. (Without the key everybody will.)
    if redis.call('EXISTS', sessions) == 1 then redis.call('HSET', sessions, NOBODY, 0) end
  elseif ours or gone then
    redis.call('HDEL', claims, fingerprint)
  end
  answers[#answers + 1] = (ours or gone or not owner) and '1' or '0'
end
return {0, table.concat(answers)}

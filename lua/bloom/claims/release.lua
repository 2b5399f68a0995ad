-- release: the caller does not work on these items any more, and they were not done.
--
-- KEYS[1]    the claims: fingerprint -> session, number, slices, note
-- KEYS[2]    the sessions that hold claims -> until when each counts as alive (ms)
--
-- ARGV[1]    the caller's session, 16 characters
-- ARGV[2]    'release': they are as if never claimed. 'abandon': those with a note are left for somebody to take
--            over. 'bury': not the caller's claims are meant, but those of dead sessions, whose items were done
-- ARGV[3..]  two for each item: its fingerprint, and the number of the claim, 8 characters; '': whatever it is
--
-- Reply      {0, answers}     a character per item: 1 its claim was ended, 0 it has none of the caller's, or a later one
-- Errors     WRONGTYPE, OOM, READONLY, before anything is changed
--
-- Sent again, it finds nothing to end: what the session has claimed meanwhile has another number.

local claims, sessions = KEYS[1], KEYS[2]
local session, how, FIRST_ITEM = ARGV[1], ARGV[2], 3
local NOBODY = string.rep('0', 16)
local now = server_time()
redis.call('HLEN', sessions)

local answers = {}
for item = FIRST_ITEM, #ARGV, 2 do
  local fingerprint, number = ARGV[item], ARGV[item + 1]
  local owner, claimed_as, within, note = owner_of(claims, fingerprint)
  local ends
  if how == 'bury' then
    ends = owner and not is_alive(sessions, owner, now)
  else
    ends = owner == session and (number == '' or number == claimed_as)
  end
  if ends and how == 'abandon' and note ~= '' then
    redis.call('HSET', claims, fingerprint, NOBODY .. claimed_as .. within .. note)
    -- A session that has just died, so that somebody looks. (Without the key everybody will.)
    if redis.call('EXISTS', sessions) == 1 then redis.call('HSET', sessions, NOBODY, now) end
  elseif ends then
    redis.call('HDEL', claims, fingerprint)
  end
  answers[#answers + 1] = ends and '1' or '0'
end
return {0, table.concat(answers)}

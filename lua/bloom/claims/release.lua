-- release: the work on these items was not done. Ends their claims.
--
-- KEYS[1]    the claims: digest -> session, number, slices, note
-- KEYS[2]    the sessions that hold claims -> until when each counts as alive (ms)
--
-- ARGV[1]    the client's session, 16 characters
-- ARGV[2]    'release': the client's claims are deleted. 'abandon': its claims with a note stay, for other sessions to
--            take over. 'dead': not the client's claims, but those of dead sessions are deleted; their items are seen
-- ARGV[3]    the items' digests, 16 bytes each
-- ARGV[4]    for each item the number of the claim, 8 characters; blanks: any number
--
-- Reply      {0, answers}     a character per item: 1 its claim was ended, 0 it has no such claim
-- Errors     WRONGTYPE, OOM, READONLY, before anything is changed
--
-- A second copy of the call finds no claim to end: later claims of the session have other numbers.

local claims, sessions = KEYS[1], KEYS[2]
local session, how, digests, numbers = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local NOBODY, ANY = string.rep('0', 16), string.rep(' ', 8)
local now = server_time()
redis.call('HLEN', sessions)

local answers = {}
for item = 0, #digests / 16 - 1 do
  local digest, number = string.sub(digests, 16 * item + 1, 16 * item + 16), string.sub(numbers, 8 * item + 1, 8 * item + 8)
  local owner, claimed_as, within, note = owner_of(claims, digest)
  local ends
  if how == 'dead' then
    ends = owner and not is_alive(sessions, owner, now)
  else
    ends = owner == session and (number == ANY or number == claimed_as)
  end
  if ends and how == 'abandon' and note ~= '' then
    redis.call('HSET', claims, digest, NOBODY .. claimed_as .. within .. note)
    -- Enters a dead session, so that others search for its claims. (Without the key they search in any case.)
    if redis.call('EXISTS', sessions) == 1 then redis.call('HSET', sessions, NOBODY, now) end
  elseif ends then
    redis.call('HDEL', claims, digest)
  end
  answers[#answers + 1] = ends and '1' or '0'
end
return {0, table.concat(answers)}

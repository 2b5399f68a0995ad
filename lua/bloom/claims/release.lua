-- release: end the claims of items on which the work was not done.
--
-- Includes   claims, clock
--
-- KEYS[1]    the claims: digest -> session, number, slices, note
-- KEYS[2]    the sessions that hold claims: name -> until when it counts as alive (ms), and its least number
--
-- ARGV[1]    the client's session, 16 characters
-- ARGV[2]    'release' deletes the client's claims. 'abandon' does too, but keeps claims with a note for other sessions to
--            take over. 'dead' deletes the claims of dead sessions instead, because their items are seen
-- ARGV[3]    the items' digests, 16 bytes each
-- ARGV[4]    for each item, the numbers of the first and the last of the session's calls whose claims end, 8 hexadecimal
--            digits each; '' with 'dead'. A claim by an earlier call stays, because it may be handed over
-- ARGV[5]    the session's least number, 8 hexadecimal digits: no later call of the session has a lower one
--
-- Reply      {0, answers}     a character per item: 1 its claim was ended, 0 it had no such claim
-- Errors     WRONGTYPE, OOM, READONLY, before anything is changed
--
-- A second copy of the call finds no claim to end, because later claims of the session have higher numbers. A late copy of
-- the claim call is refused if its number is below the least one, which only a session with an entry has.

local claims, sessions = KEYS[1], KEYS[2]
local session, how, digests, numbers = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local NOBODY, least = string.rep('0', 16), tonumber(ARGV[5], 16)
local now = server_time()
redis.call('HLEN', sessions)

local answers, leaves_work = {}, false
for item = 0, #digests / 16 - 1 do
  local digest = string.sub(digests, 16 * item + 1, 16 * item + 16)
  local owner, claimed_as, within, note = owner_of(claims, digest)
  local ends
  if how == 'dead' then
    ends = owner and not is_alive(sessions, owner, now)
  else
    local first, last = string.sub(numbers, 16 * item + 1, 16 * item + 8), string.sub(numbers, 16 * item + 9, 16 * item + 16)
    ends = owner == session and first <= claimed_as and claimed_as <= last
  end
  if ends and how == 'abandon' and note ~= '' then
    redis.call('HSET', claims, digest, NOBODY .. claimed_as .. within .. note)
    leaves_work = true
  elseif ends then
    redis.call('HDEL', claims, digest)
  end
  answers[#answers + 1] = ends and '1' or '0'
end

if leaves_work then
  -- A dead session makes other clients search for its claims. The key may be new, if the server has lost it.
  redis.call('HSET', sessions, NOBODY, session_entry(now, 0))
  local left = redis.call('PTTL', claims)
  if left > 0 then give_or_extend_ttl(sessions, now + left, now) end
end
local alive_until, last_least = session_parts(redis.call('HGET', sessions, session), now)
if alive_until > 0 and least > last_least then
  -- A server that is out of memory refuses this write, but the release must not fail.
  redis.pcall('HSET', sessions, session, session_entry(alive_until, least))
end
return {0, table.concat(answers)}

-- release: end the claims of items on which the work was not done.
--
-- Includes   claims, clock
--
-- KEYS[1]    the claims: digest -> session, number, slices, note
-- KEYS[2]    the sessions that hold claims: name -> until when it counts as alive (ms)
--
-- ARGV[1]    the client's session, 16 characters
-- ARGV[2]    'release' deletes the client's claims. 'abandon' does too, but keeps claims with a note for other sessions to
--            take over. 'dead' deletes the claims of dead sessions instead, because their items are seen
-- ARGV[3]    the items' digests, 16 bytes each
-- ARGV[4]    for each item, the number of the last of the session's calls whose claims end, 8 hexadecimal digits; '' with 'dead'
--
-- Reply      {0, answers}     a character per item: 1 its claim was ended, 0 it had no such claim
-- Errors     WRONGTYPE, OOM, READONLY, before anything is changed
--
-- A second copy of the call ends no claim, because later claims of the session have higher numbers.

local claims, sessions = KEYS[1], KEYS[2]
local session, how, digests, numbers = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
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
    ends = owner == session and claimed_as <= string.sub(numbers, 8 * item + 1, 8 * item + 8)
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
  local left = redis.call('PTTL', claims)
  leave_work(sessions, now, left > 0 and now + left)
end
return {0, table.concat(answers)}

-- requeue: give items to another queue, as if they were left for the first time; or end their claims. They are items that are left,
-- or that their sessions hold although the work has failed. A member of the index that no claim has leaves it: the server has
-- lost this claim.
--
-- Includes   claims, clock
--
-- KEYS[1]    the claims (shared/claims.lua)
-- KEYS[2]    the index of left items (shared/claims.lua)
--
-- ARGV[1]    the queue, 8 characters; '': the claims end
-- ARGV[2..]  for each item three words: its digest (16 bytes), what the client has read of its claim before the note, and its
--            new note; '': as before, without the failure. Or, of a member that no claim seems to have: digest, member, ''
--
-- Reply      {0, answers}     a character per item: 1 its claim was changed; 0 it is no longer as the client has read it
-- Errors     WRONGTYPE, OOM, READONLY, each before anything is changed
--
-- A second copy of the call changes nothing, because the claims are no longer as the client has read them.

local claims, index, queue, answers = KEYS[1], KEYS[2], ARGV[1], {}
local now = server_time()
redis.call('ZCARD', index)

for at = 2, #ARGV, 3 do
  local digest, head, new_note = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  local claim = redis.call('HGET', claims, digest)
  local owner, _, place, note = claim_parts(claim)
  if #head == 29 and not (place and member_of(owner, place, digest) == head) then redis.call('ZREM', index, head) end
  local is_same = place and string.sub(claim, 1, 38) == head and unindex(index, owner, place, digest)
  if is_same and queue == '' then
    redis.call('HDEL', claims, digest)
  elseif is_same then
    if new_note == '' then new_note = without_failure(note) end
    local _, _, host = place_parts(place)
    leave(claims, index, digest, LEFT, '00000000', place_of(queue, '0', host, '0') .. new_note)
  end
  answers[#answers + 1] = is_same and '1' or '0'
end
keep_as_long(index, claims, now) -- the last item that left the index has ended it
return {0, table.concat(answers)}

-- release: end the claims of items on which the work was not done.
--
-- Includes   claims, clock
--
-- KEYS[1]    the claims (shared/claims.lua)
-- KEYS[2]    the sessions that hold claims (shared/claims.lua)
-- KEYS[3]    the index of left items (shared/claims.lua)
--
-- ARGV[1]    the client's session, 16 characters
-- ARGV[2]    1: leave items with a note to any session; 0: end all claims
-- ARGV[3]    the items' digests, 16 bytes each
-- ARGV[4]    for each item, the number of the last of the session's calls whose claims end, 8 hexadecimal digits
-- ARGV[5]    hosts with which the session parts, 4 characters each (shared/claims.lua); may be missing
-- ARGV[6]    hosts with which it has parted, and of which it has nothing any more. They have no owner then
--
-- Reply      {0, answers}     a character per item: 1 its claim was ended, 0 it had no such claim
-- Errors     WRONGTYPE, OOM, READONLY, before anything is changed
--
-- A second copy of the call ends no claim, because later claims of the session have higher numbers.

local claims, sessions, index = KEYS[1], KEYS[2], KEYS[3]
local session, leaves, digests, numbers = ARGV[1], ARGV[2] == '1', ARGV[3], ARGV[4]
local now = server_time()
local _, queue = session_parts(redis.call('HGET', sessions, session), now)
redis.call('ZCARD', index)

local answers, any_left = {}, false
for item = 0, #digests / 16 - 1 do
  local digest = string.sub(digests, 16 * item + 1, 16 * item + 16)
  local owner, claimed_as, place, note = claim_of(claims, digest)
  local ends = owner == session and claimed_as <= string.sub(numbers, 8 * item + 1, 8 * item + 8)
  if ends then unindex(index, owner, place, digest) end
  if ends and leaves and note ~= '' then
    leave(claims, index, digest, LEFT, claimed_as, place .. note)
    any_left = true
  elseif ends then
    redis.call('HDEL', claims, digest)
  end
  answers[#answers + 1] = ends and '1' or '0'
end

local parts = session .. '-' -- what the entry of a host has when the session parts with it
for host in string.gmatch(ARGV[5] or '', '....') do
  local field = queue and host_field(queue, host)
  if field and redis.call('HGET', claims, field) == session then redis.call('HSET', claims, field, parts) end
end
for host in string.gmatch(ARGV[6] or '', '....') do
  local field = queue and host_field(queue, host)
  if field and redis.call('HGET', claims, field) == parts then redis.call('HDEL', claims, field) end
end

if any_left then keep_as_long(index, claims, now) end
return {0, table.concat(answers)}

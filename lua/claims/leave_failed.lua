-- leave_failed: leave items on which the work has failed in earlier crawls to the sessions of another queue, some in each call. How
-- often it has failed stays with each.
--
-- Includes   claims, clock
--
-- KEYS[1]    the claims (shared/claims.lua)
-- KEYS[2]    the index of left items (shared/claims.lua)
--
-- ARGV[1]    the queue of the failed items, 8 characters
-- ARGV[2]    the other queue, 8 characters
-- ARGV[3]    the most items of one call
--
-- Reply      {0, more}        1: more calls are needed; 0: none is left in the first queue
-- Errors     WRONGTYPE, OOM, READONLY, before anything is changed

local claims, index, failed, queue = KEYS[1], KEYS[2], ARGV[1], ARGV[2]
local now = server_time()
redis.call('HLEN', claims)

-- What living sessions still hold comes behind '9'.
local members = redis.call('ZRANGEBYLEX', index, '[' .. failed, '(' .. failed .. '9', 'LIMIT', '0', ARGV[3])
for _, member in ipairs(members) do
  local digest = string.sub(member, -16)
  local owner, claimed_as, place, note = claim_of(claims, digest)
  redis.call('ZREM', index, member)
  if owner and member_of(owner, place, digest) == member then
    local _, deaths, host, failures = place_parts(place)
    leave(claims, index, digest, owner, claimed_as, place_of(queue, deaths, host, failures) .. note)
  end
end
keep_as_long(index, claims, now) -- the last item that left the index has ended it
return {0, #members > 0 and 1 or 0}

-- history: change what claims of the session say of the past of their items, and for which queue these are.
--
-- Includes   claims, clock
--
-- KEYS[1]    the claims (shared/claims.lua)
-- KEYS[2]    the sessions that hold claims (shared/claims.lua)
-- KEYS[3]    the index of left items (shared/claims.lua)
--
-- ARGV[1]    the client's session, 16 characters
-- ARGV[2]    the number of this call in the session, 8 hexadecimal digits; stored with the claims
-- ARGV[3]    for each item, its digest (16 bytes), the queue (8 characters), the number of sessions that have died of it (1 digit),
--            and how often in a row the work on it has failed (1 digit)
-- ARGV[4..]  for each item, when and why the work on it has failed, a JSON array whose first value is the time (s), or 0: now;
--            '': it has not. A note that is a JSON object gets it as its last field. The item is in the index from now on, and
--            still the session's. May be missing
--
-- Reply      {0, answers}     a character per item: 1 its claim was changed; 0 the session has no claim with a note on it, or a
--                             later one
--            {0, answers, waiting}  the same, and what a commit tells of sessions that wait (bloom/commit.lua): where all work
--                             fails, there are no commits
-- Errors     WRONGTYPE, OOM, READONLY, each before anything is changed
--
-- A late copy of the call changes nothing, because what the session does later with a claim has higher numbers.

local claims, sessions, index, session, call, histories = KEYS[1], KEYS[2], KEYS[3], ARGV[1], ARGV[2], ARGV[3]
local now = server_time()
redis.call('ZCARD', index)
local _, own_queue = session_parts(redis.call('HGET', sessions, session), now)
local counted = own_queue and redis.call('HGET', sessions, 'w' .. own_queue)

local answers, any_failed = {}, false
for at = 1, #histories, 26 do
  local digest, failure = string.sub(histories, at, at + 15), ARGV[4 + #answers] or ''
  local owner, claimed_as, place, note = claim_of(claims, digest)
  local changes = owner == session and claimed_as <= call and place ~= ''
  if changes then
    unindex(index, owner, place, digest)
    local _, _, host = place_parts(place)
    local queue, deaths, failures = string.match(histories, '^(........)(.)(.)', at + 16)
    place = place_of(queue, deaths, host, failures)
    if failure ~= '' then
      failure = string.gsub(failure, '^%[0,', string.format('[%.0f,', math.floor(now / 1000)))
      local _, before = without_failure(note)
      note, any_failed = before and before .. ', "_failed": ' .. failure .. '}' or note, true
      redis.call('ZADD', index, 0, member_of(owner, place, digest))
    end
    redis.call('HSET', claims, digest, session .. call .. place .. note)
  end
  answers[#answers + 1] = changes and '1' or '0'
end

if any_failed then keep_as_long(index, claims, now) end
return {0, table.concat(answers), count_waiting(counted, index, own_queue, now)}

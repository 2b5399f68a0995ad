-- heartbeat: keep a session alive, or end it.
--
-- Includes   claims, clock
--
-- KEYS[1]    the claims (shared/claims.lua)
-- KEYS[2]    the sessions that hold claims (shared/claims.lua)
-- KEYS[3]    the index of left items (shared/claims.lua)
--
-- ARGV[1]    the client's session, 16 characters
-- ARGV[2]    how long the session counts as alive without another heartbeat (ms). 0 ends a session that leaves claims; -1
--            ends a session that leaves none
-- ARGV[3]    when the current slice leaves the window (ms)
--
-- Reply      {0, dead, known} dead: 1: a session is dead, and its claims are to be left (bury.lua). A look at some sessions
--                             says so, because there may be very many. known: 1: the session lives on; 0: the server does not
--                             know it (any more), or others have begun to leave its claims
-- Errors     WRONGTYPE, OOM, READONLY, before anything is changed

local claims, sessions, index = KEYS[1], KEYS[2], KEYS[3]
local session, life, expires = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local now = server_time()

redis.call('HLEN', claims)
redis.call('ZCARD', index)
local entry, known = redis.call('HGET', sessions, session), 0
local lost = is_lost(claims, sessions, entry, now)
-- A session begins with its first claim, so that a late heartbeat does not bring an ended one back.
if entry or not lost then
  local _, queue, waits_until, has_ended = session_parts(entry, now)
  if life < 0 then
    redis.call('HDEL', sessions, session)
  elseif life == 0 then
    redis.call('HSET', sessions, session, string.format('%.0f e', now))
  elseif not has_ended and not lost then
    keep_session(sessions, session, now + life, queue, waits_until)
    known = 1
  end
  if life <= 0 and queue then redis.call('HDEL', sessions, 'w' .. queue) end -- the count of its sessions (take.lua)
  if life >= 0 then keep_claims(claims, sessions, index, expires, life, now) end
end

local some = redis.call('HRANDFIELD', sessions, '8', 'WITHVALUES')
for i = 1, #some, 2 do
  if #some[i] == 16 and session_parts(some[i + 1], now) <= now then return {0, 1, known} end
end
return {0, 0, known}

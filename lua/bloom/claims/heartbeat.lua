-- heartbeat: keep a session alive, or end it, and return all sessions.
--
-- Includes   claims, clock
--
-- KEYS[1]    the claims: digest -> session, number, slices, note
-- KEYS[2]    the sessions that hold claims: name -> until when it counts as alive (ms)
--
-- ARGV[1]    the client's session, 16 characters; '': only return the sessions
-- ARGV[2]    how long the session counts as alive without another heartbeat (ms). 0 ends a session that leaves claims; -1
--            ends a session that leaves none
-- ARGV[3]    when the current slice leaves the window (ms)
--
-- Reply      {0, {now, session, until, ...}}  the server's clock (ms), then each session and until when it counts as alive
--                             (0: its entry is damaged, and abandoned.lua will delete it)
-- Errors     WRONGTYPE, OOM, READONLY, before anything is changed

local claims, sessions = KEYS[1], KEYS[2]
local session, life, expires = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local now = server_time()

local claimed = redis.call('HLEN', claims)
-- A session begins with its first claim, so that a late heartbeat does not bring an ended one back. But if there are claims and
-- no sessions, the server has lost the sessions (perhaps it has evicted the key), and the living ones come back.
local is_lost = session ~= '' and claimed > 0 and redis.call('HLEN', sessions) == 0
if is_lost or redis.call('HGET', sessions, session) then
  if life > 0 then keep_alive(sessions, session, now + life) end
  if life == 0 then leave_work(sessions, now) end
  if life >= 0 then keep_claims(claims, sessions, expires, life, now) end
  if life <= 0 then redis.call('HDEL', sessions, session) end
end

local reply, all = {now}, redis.call('HGETALL', sessions)
for i = 1, #all, 2 do
  reply[i + 1], reply[i + 2] = all[i], alive_until(all[i + 1], now)
end
return {0, reply}

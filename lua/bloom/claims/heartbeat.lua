-- heartbeat: keep a session alive, or end it, and return all sessions.
--
-- Includes   claims, clock
--
-- KEYS[1]    the claims: digest -> session, number, slices, note
-- KEYS[2]    the sessions that hold claims: name -> until when it counts as alive (ms), and its least number
--
-- ARGV[1]    the client's session, 16 characters; '': only return the sessions
-- ARGV[2]    how long the session counts as alive without another heartbeat (ms). 0 ends a session that leaves claims; -1
--            ends a session that leaves none
-- ARGV[3]    when the current slice leaves the window (ms)
-- ARGV[4]    the session's least number, 8 hexadecimal digits: no later call of the session has a lower one
--
-- Reply      {0, {now, session, until, ...}}  the server's clock (ms), then each session and until when it counts as alive
--                             (0: its entry is damaged, and abandoned.lua will delete it)
-- Errors     WRONGTYPE, OOM, READONLY, before anything is changed

local claims, sessions = KEYS[1], KEYS[2]
local session, life, expires, least = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4], 16)
local now = server_time()

redis.call('HLEN', claims)
local entry = redis.call('HGET', sessions, session)
if life < 0 then
  redis.call('HDEL', sessions, session)
elseif session ~= '' and (life > 0 or entry) then
  local _, last_least = session_parts(entry, now)
  redis.call('HSET', sessions, session, session_entry(now + life, math.max(least, last_least)))
  keep_claims(claims, sessions, expires, life, now)
end

local reply, all = {now}, redis.call('HGETALL', sessions)
for i = 1, #all, 2 do
  reply[i + 1], reply[i + 2] = all[i], (session_parts(all[i + 1], now))
end
return {0, reply}

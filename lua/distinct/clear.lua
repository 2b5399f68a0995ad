-- clear: forgets what a counter has counted, and its parameters. Its pieces are stale then (sweep.lua). The ids stay in the
-- mapping.
--
-- Includes   clock, parameters
--
-- KEYS[1]    the mapping's parameters
-- KEYS[2]    the entries of the mapping's counters, by name
--
-- ARGV[1]    the mapping's parameters, as the client knows them
-- ARGV[2]    the counter's name
-- ARGV[3]    its entry, as the client has read it
-- ARGV[4]    1: there is no mapping, so the parameters go too
--
-- Reply      {0, now}         the server's clock (ms): done, or the entry is another one or none: the counter has been cleared before
--            {2, parameters}  the mapping is stored with other parameters; nothing changed
-- Errors     WRONGTYPE, READONLY, all of them before anything is changed

local refusal = disagreement(KEYS[1], ARGV[1], true)
if refusal then return refusal end
if redis.call('HGET', KEYS[2], ARGV[2]) == ARGV[3] then
  redis.call('HDEL', KEYS[2], ARGV[2])
  if ARGV[4] == '1' then redis.call('UNLINK', KEYS[1]) end
end
return {0, server_time()}

-- clear: delete a counter's entry, and so its counts and parameters. Its pieces are stale after that (sweep.lua). The ids stay in
-- the mapping.
--
-- Includes   clock, parameters
--
-- KEYS[1]    the mapping's parameters
-- KEYS[2]    the entries of the mapping's counters, by name
--
-- ARGV[1]    the mapping's parameters, as the client knows them
-- ARGV[2]    the counter's name
-- ARGV[3]    the counter's entry, as the client has read it
-- ARGV[4]    1: there is no mapping, so the parameters in KEYS[1] are deleted too
--
-- Reply      {0, now}         the server's clock (ms). Done, or the counter was cleared before, so its entry is another one or
--                             missing
--            {2, parameters}  the mapping is stored with other parameters; nothing changed
-- Errors     WRONGTYPE, READONLY, each before anything is changed

local refusal = disagreement(KEYS[1], ARGV[1], true)
if refusal then return refusal end
if redis.call('HGET', KEYS[2], ARGV[2]) == ARGV[3] then
  redis.call('HDEL', KEYS[2], ARGV[2])
  if ARGV[4] == '1' then redis.call('UNLINK', KEYS[1]) end
end
return {0, server_time()}

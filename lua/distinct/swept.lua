-- swept: removes a mapping's former layout and the former entries, once what they name is deleted.
--
-- KEYS[1]    the former layout
-- KEYS[2]    the former entries
--
-- ARGV[1]    the former layout's generation, as the client has read it
--
-- Reply      0
-- Errors     WRONGTYPE, READONLY, all of them before anything is changed

if generation_of(KEYS[1]) == ARGV[1] then redis.call('UNLINK', KEYS[1], KEYS[2]) end
return 0

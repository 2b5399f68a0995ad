-- swept: removes a mapping's former layout, once its buckets are deleted.
--
-- KEYS[1]    that layout
--
-- ARGV[1]    its generation
--
-- Reply      0
-- Errors     WRONGTYPE, READONLY, all of them before anything is changed

if generation_of(KEYS[1]) == ARGV[1] then redis.call('UNLINK', KEYS[1]) end
return 0

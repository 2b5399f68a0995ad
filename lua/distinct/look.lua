-- look: the contents of one slice of a counter, and the server's time.
--
-- KEYS[1]    the slice's directory (see add.lua)
--
-- Reply      {now, count, sorted, bitmaps}  the server's clock (ms), the number of members, the number of chunks that are
--                             sorted ids, and the chunks that are bitmaps
-- Errors     WRONGTYPE

local bitmaps, sorted = bitmaps_in(KEYS[1])
return {server_time(), tonumber(redis.call('HGET', KEYS[1], 'n') or 0) or 0, sorted, bitmaps}

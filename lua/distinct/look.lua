-- distinct_look: what one slice of a counter consists of, and what time it is.
--
-- KEYS[1]    the slice's directory (distinct_add.lua says what it holds)
--
-- Reply      {now, count, sorted, bitmaps}  the server's clock (ms); how many members are counted; how many chunks are
--                             sorted ids; and the numbers of those that are bitmaps
-- Errors     WRONGTYPE

local bitmaps, sorted = bitmaps_in(KEYS[1])
return {server_time(), tonumber(redis.call('HGET', KEYS[1], 'n') or 0) or 0, sorted, bitmaps}

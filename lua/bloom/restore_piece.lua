-- restore_piece: write a piece of a restored part, under a temporary name.
--
-- Includes   none
--
-- KEYS[1]    the part's name until restore_shard.lua puts it in its place
--
-- ARGV[1]    the piece
-- ARGV[2]    its offset in the part (bytes); the piece at 0 comes first, and makes the key
-- ARGV[3]    the size of the part (bytes)
-- ARGV[4]    how long the key lives without a further piece (ms)
--
-- Reply      {0, ''}   written
--            {8, key}  the server has dropped the part; nothing changed
-- Errors     WRONGTYPE, OOM, READONLY, each before anything is changed

local part, piece, offset, size, life = KEYS[1], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]

if offset > 0 and redis.call('EXISTS', part) == 0 then return {8, part} end
-- The last byte first, so that Redis allocates the key once, at its full size.
if offset == 0 then redis.call('SETRANGE', part, size - 1, '\0') end
redis.call('SETRANGE', part, offset, piece)
redis.call('PEXPIRE', part, life)
return {0, ''}

-- take_in: write a piece of a part that is taken in from elsewhere, under a name for the time being.
--
-- KEYS[1]    what the part is called until install.lua puts it in its place
--
-- ARGV[1]    the piece
-- ARGV[2]    its place in the part (bytes); the piece at 0 comes first, and makes the key
-- ARGV[3]    the size of the part (bytes)
-- ARGV[4]    how long the key lives unless another piece comes, or it is put in its place (ms)
--
-- Reply      1: written; 0: the key is not there any more; nothing changed
-- Errors     WRONGTYPE, OOM, READONLY, all of them before anything is changed

local part, piece, place, size, life = KEYS[1], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]

if place > 0 and redis.call('EXISTS', part) == 0 then return 0 end
-- Its last byte first, so that Redis allocates it at its full size, once.
if place == 0 then redis.call('SETRANGE', part, size - 1, '\0') end
redis.call('SETRANGE', part, place, piece)
redis.call('PEXPIRE', part, life)
return 1

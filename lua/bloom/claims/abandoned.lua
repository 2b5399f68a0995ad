-- abandoned: find the claims of dead sessions on one page of the claims. A claim without a note is deleted. A claim with a
-- note is returned, so that the client can claim the item and do the work. Damaged entries of both hashes are deleted.
--
-- Includes   claims, clock
--
-- KEYS[1]    the claims: digest -> session, number, slices, note
-- KEYS[2]    the sessions that hold claims: name -> until when it counts as alive (ms)
--
-- ARGV[1]    the cursor: '0' at the start, later that of the last reply
-- ARGV[2]    about how many claims a page has
-- ARGV[3]    1: return claims with a note; 0: only delete claims without one
-- ARGV[4]    the prefix of the notes that the client can handle
-- ARGV[5..]  the sessions whose claims have all been handled, two arguments each: the name, and until when the session
--            counted as alive at that time. A session is deleted if no heartbeat has changed that time since
--
-- Reply      {0, {cursor, remaining, digest, slices, note, ...}}  cursor: '0' after the last page. remaining: the number of
--                             claims with a note that are not returned. Digests are in hexadecimal
-- Errors     WRONGTYPE, READONLY, before anything is changed

local claims, sessions = KEYS[1], KEYS[2]
local cursor, count, wanted, prefix, FIRST_HANDLED = ARGV[1], ARGV[2], ARGV[3] == '1', ARGV[4], 5
local now = server_time()

local all, page = redis.call('HGETALL', sessions), redis.call('HSCAN', claims, cursor, 'COUNT', count)
local found, lives_until = {page[1], 0}, {}
for i = 1, #all, 2 do
  local session = all[i]
  lives_until[session] = alive_until(all[i + 1], now)
  local is_damaged = lives_until[session] == 0 or #session ~= 16 or string.find(session, '%X')
  if is_damaged then redis.call('HDEL', sessions, session) end
end

for i = FIRST_HANDLED, #ARGV, 2 do
  local session, was_alive_until = ARGV[i], tonumber(ARGV[i + 1])
  if lives_until[session] == was_alive_until and was_alive_until <= now then redis.call('HDEL', sessions, session) end
end
for i = 1, #page[2], 2 do
  local digest, owner, _, within, note = page[2][i], claim_parts(page[2][i + 1])
  if not owner or #digest ~= 16 then
    redis.call('HDEL', claims, digest)
  elseif (lives_until[owner] or 0) <= now then
    if note == '' then
      redis.call('HDEL', claims, digest)
    elseif not wanted or string.sub(note, 1, #prefix) ~= prefix then
      found[2] = found[2] + 1
    else
      local n = #found
      found[n + 1] = string.gsub(digest, '.', function(byte) return string.format('%02x', string.byte(byte)) end)
      found[n + 2], found[n + 3] = within, note
    end
  end
end
return {0, found}

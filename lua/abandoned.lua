-- abandoned: look through some of the claims for those whose session is dead. Those without a note are dropped,
-- those with one are told, so that somebody may claim them and go on with the work.
--
-- KEYS[1]    the claims: fingerprint -> session, number, note
-- KEYS[2]    the sessions that hold claims -> until when each counts as alive (ms)
--
-- ARGV[1]    where to go on: '0', or what the last call replied
-- ARGV[2]    about how many claims to look at
-- ARGV[3]    how the notes begin that the caller can do something with
-- ARGV[4..]  sessions whose claims have all been seen to: forgotten, if they are still dead
--
-- Reply      {0, {next, others, fingerprint, note, ...}}  next: where to go on, '0' at the end; others: how many
--                             have a note that begins otherwise; fingerprints in hexadecimal
-- Errors     WRONGTYPE, READONLY, before anything is changed

local claims, sessions = KEYS[1], KEYS[2]
local cursor, count, prefix, FIRST_FORGOTTEN = ARGV[1], ARGV[2], ARGV[3], 4
local now = server_time()

local alive = {}
local all = redis.call('HGETALL', sessions)
for i = 1, #all, 2 do alive[all[i]] = (tonumber(all[i + 1]) or 0) > now end
local scanned = redis.call('HSCAN', claims, cursor, 'COUNT', count)

for i = FIRST_FORGOTTEN, #ARGV do
  if not alive[ARGV[i]] then redis.call('HDEL', sessions, ARGV[i]) end
end
local found = {scanned[1], 0}
for i = 1, #scanned[2], 2 do
  local fingerprint, owner, _, note = scanned[2][i], claim_parts(scanned[2][i + 1])
  if not alive[owner] then
    if note == '' then
      redis.call('HDEL', claims, fingerprint)
    elseif string.sub(note, 1, #prefix) ~= prefix then
      found[2] = found[2] + 1
    else
      found[#found + 1] = string.gsub(fingerprint, '.', function(byte) return string.format('%02x', string.byte(byte)) end)
      found[#found + 1] = note
    end
  end
end
return {0, found}

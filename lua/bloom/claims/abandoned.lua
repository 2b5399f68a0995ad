-- abandoned: look through some of the claims for those whose session is dead. Those without a note are dropped,
-- those with one are told, so that somebody may claim them and go on with the work.
--
-- KEYS[1]    the claims: fingerprint -> session, number, slices, note
-- KEYS[2]    the sessions that hold claims -> until when each counts as alive (ms)
--
-- ARGV[1]    where to go on: '0', or what the last call replied
-- ARGV[2]    about how many claims to look at
-- ARGV[3]    1: the notes are wanted; 0: only those without are dropped
-- ARGV[4]    how the notes begin that the caller can do something with
-- ARGV[5..]  two for each session whose claims have all been seen to: its name, and until when it counted as alive
--            then. If nothing was heard of it since, it is forgotten
--
-- Reply      {0, {next, left, fingerprint, slices, note, ...}}  next: where to go on, '0' at the end; left: how many
--                             have a note, and are not told; fingerprints in hexadecimal
-- Errors     WRONGTYPE, READONLY, before anything is changed

local claims, sessions = KEYS[1], KEYS[2]
local cursor, count, wanted, prefix, FIRST_FORGOTTEN = ARGV[1], ARGV[2], ARGV[3] == '1', ARGV[4], 5
local now = server_time()

local alive_until = {}
local all = redis.call('HGETALL', sessions)
for i = 1, #all, 2 do alive_until[all[i]] = tonumber(all[i + 1]) or 0 end
local scanned = redis.call('HSCAN', claims, cursor, 'COUNT', count)

for i = FIRST_FORGOTTEN, #ARGV, 2 do
  local session, then_until = ARGV[i], tonumber(ARGV[i + 1])
  if alive_until[session] == then_until and then_until <= now then redis.call('HDEL', sessions, session) end
end
local found = {scanned[1], 0}
for i = 1, #scanned[2], 2 do
  local fingerprint, owner, _, within, note = scanned[2][i], claim_parts(scanned[2][i + 1])
  if (alive_until[owner] or 0) <= now then
    if note == '' then
      redis.call('HDEL', claims, fingerprint)
    elseif not wanted or string.sub(note, 1, #prefix) ~= prefix then
      found[2] = found[2] + 1
    else
      local n = #found
      found[n + 1] = string.gsub(fingerprint, '.', function(byte) return string.format('%02x', string.byte(byte)) end)
      found[n + 2], found[n + 3] = within, note
    end
  end
end
return {0, found}

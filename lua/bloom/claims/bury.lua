-- bury: leave the claims of dead sessions to any session, some claims at a time. Claims without a note, and damaged entries, are
-- deleted. Each call looks at the next claims; once all were looked at, the sessions that were dead from the first call on
-- are deleted. Any number of clients may take turns.
--
-- Includes   claims, clock
--
-- KEYS[1]    the claims (shared/claims.lua)
-- KEYS[2]    the sessions that hold claims (shared/claims.lua). Its field 'burial' has the cursor for the next call, and when the first call was
--            made (ms)
-- KEYS[3]    the index of left items (shared/claims.lua), which gets those that it lacks
--
-- ARGV[1]    about how many claims a call looks at
--
-- Reply      {0, more}        1: more calls are needed; 0: no session is dead
-- Errors     WRONGTYPE, OOM, READONLY, before anything is changed

local claims, sessions, index, count = KEYS[1], KEYS[2], KEYS[3], ARGV[1]
local now = server_time()

local cursor, began = string.match(redis.call('HGET', sessions, 'burial') or '', '^(%d+) (%d+)$')
began = tonumber(began) or now
local all, page = redis.call('HGETALL', sessions), redis.call('HSCAN', claims, cursor or '0', 'COUNT', count)
redis.call('ZCARD', index)
-- The sessions that live; those that are dead, with the time of it; and the owner of what these leave (shared/claims.lua).
local alive, dead, heirs = {}, {}, {}
for i = 1, #all, 2 do
  local name = all[i]
  local until_ms, _, has_ended = session_parts(all[i + 1], now)
  if until_ms > now then
    alive[name] = true
  elseif #name == 16 and not string.find(name, '%X') then
    dead[name], heirs[name] = until_ms, has_ended and LEFT or BEREFT
  elseif name ~= 'burial' and string.sub(name, 1, 1) ~= 'w' then
    redis.call('HDEL', sessions, name)
  end
end

for i = 1, #page[2], 2 do
  local digest, owner, claimed_as, place, note = page[2][i], claim_parts(page[2][i + 1])
  if #digest == 13 and string.sub(digest, 1, 1) == 'h' then -- a host
    if not alive[string.sub(page[2][i + 1], 1, 16)] then redis.call('HDEL', claims, digest) end
  elseif not owner or #digest ~= 16 or note == '' and not alive[owner] then
    redis.call('HDEL', claims, digest)
  elseif not alive[owner] then
    -- What is left already gets into the index again, in case the server has lost that. The session has not died of an item that
    -- it held only because the work had failed.
    local has_failed = not is_left(owner) and unindex(index, owner, place, digest)
    local heir = is_left(owner) and owner or not has_failed and heirs[owner] or LEFT
    leave(claims, index, digest, heir, claimed_as, place .. note)
  end
end
if page[1] ~= '0' then redis.call('HSET', sessions, 'burial', string.format('%s %.0f', page[1], began)) end
local left_ms = redis.call('PTTL', claims)
if left_ms > 0 then
  for _, key in ipairs({sessions, index}) do give_or_extend_ttl(key, now + left_ms, now) end
end
if page[1] ~= '0' then return {0, 1} end

local more = 0
for name, until_ms in pairs(dead) do
  -- A session that died since may have claimed items that were passed.
  if until_ms < began then redis.call('HDEL', sessions, name) else more = 1 end
end
redis.call('HDEL', sessions, 'burial')
if more == 1 then begin_burial(sessions, now) end
return {0, more}

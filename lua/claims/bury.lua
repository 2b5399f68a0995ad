-- bury: leave the claims of dead sessions to any session, some claims at a time. Claims without a note, and damaged entries, are
-- deleted. Each call looks at the next claims; once all were looked at, the sessions that were dead from the first call on
-- are deleted. Any number of clients may take turns.
--
-- Includes   claims, clock
--
-- KEYS[1]    the claims (shared/claims.lua)
-- KEYS[2]    the sessions that hold claims (shared/claims.lua). Its field 'burial' has the cursor for the next call, and when the
--            first call was made (ms)
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
local next_cursor, some = page[1], page[2]
redis.call('ZCARD', index)

-- The names of living sessions; of dead ones, when they died; and who owns what these leave. Damaged entries are deleted.
local alive, died_at, heirs = {}, {}, {}
for i = 1, #all, 2 do
  local name = all[i]
  local until_ms, _, _, has_ended = session_parts(all[i + 1], now)
  if until_ms > now then
    alive[name] = true
  elseif #name == 16 and not string.find(name, '%X') then
    died_at[name], heirs[name] = until_ms, has_ended and LEFT or BEREFT
  elseif name ~= 'burial' and string.sub(name, 1, 1) ~= 'w' then
    redis.call('HDEL', sessions, name)
  end
end

-- Leaves an item that no living session owns. One that is left already gets into the index again, in case the server has lost that.
local function leave_item(digest, owner, claimed_as, place, note)
  local heir = is_left(owner) and owner or heirs[owner] or LEFT
  -- The session has not died of an item that it held only because the work had failed.
  if not is_left(owner) and unindex(index, owner, place, digest) then heir = LEFT end
  leave(claims, index, digest, heir, claimed_as, place .. note)
end

for i = 1, #some, 2 do
  local field, value = some[i], some[i + 1]
  local owner, claimed_as, place, note = claim_parts(value)
  local is_host = #field == 13 and string.sub(field, 1, 1) == 'h'
  local is_damaged = not is_host and (not owner or #field ~= 16)
  local lives = alive[is_host and string.sub(value, 1, 16) or owner]
  if is_damaged or not lives and (is_host or note == '') then
    redis.call('HDEL', claims, field)
  elseif not lives then
    leave_item(field, owner, claimed_as, place, note)
  end
end
if next_cursor ~= '0' then redis.call('HSET', sessions, 'burial', string.format('%s %.0f', next_cursor, began)) end
keep_as_long(sessions, claims, now)
keep_as_long(index, claims, now)
if next_cursor ~= '0' then return {0, 1} end

-- All claims were looked at. A session that has died since the burial began may have claimed items that were passed.
local more = 0
for name, at in pairs(died_at) do
  if at < began then redis.call('HDEL', sessions, name) else more = 1 end
end
redis.call('HDEL', sessions, 'burial')
if more == 1 then begin_burial(sessions, now) end
return {0, more}

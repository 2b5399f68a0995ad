-- commit: remember these items in a chosen slice, except those that it or a newer slice holds, and end the session's
-- claims on them. ("tbloom import" uses it without a session.)
--
-- Includes   blocks, calls, changes, claims, clock, keys, lanes, layouts
--
-- KEYS[1]    the filter's parameters
-- KEYS[2]    its state (add.lua)
-- KEYS[3]    the claims: digest -> session, number, slices, note
-- KEYS[4]    the newest part of the chosen slice: new items go there
-- KEYS[5..]  all other parts of the current slice, of the chosen one and of those between, the newest first of those of
--            one size
--
-- ARGV[1]    what the calls of the slice share (shared/calls.lua)
-- ARGV[2]    the client's session, 16 characters; '': none
-- ARGV[3]    the items (groups_of in shared/blocks.lua), each with its digest behind it, 16 bytes
--
-- Reply      {0, answers}     a character per item: 1 remembered now, 0 it was before. Fewer characters than items:
--                             the part is full, and the item after these was not added (set_layout.lua), and is still
--                             claimed
--            {1, now}         the server's clock (ms) is not within the current slice; nothing changed
--            {4, ''}          there is no such filter, or not any more (open.lua begins one); nothing changed
--            {5, layout, parameters}  the stored layout has another version; nothing changed
-- Errors     WRONGTYPE, OOM, READONLY, each before anything is changed
--
-- A second copy of the call finds the items in the filter, and changes nothing.

local config_key, state, claims, part, FIRST_PART = KEYS[1], KEYS[2], KEYS[3], KEYS[4], 4
local begins, ends, expires, capacity, part_bytes, version, field, oldest, sizes = read_constants(ARGV[1])
local session, items = ARGV[2], ARGV[3]

local now = server_time()
if now < begins or now >= ends then return {1, now} end

local stored = redis.call('HMGET', state, 'layout', field)
local layout, count = stored[1], items_in(stored[2])
if version_of(layout or '') ~= version or not layout then return other_layout(layout, config_key) end
if session ~= '' then redis.call('HLEN', claims) end

-- Another program's key raises WRONGTYPE before anything is changed, because an item is new only after all parts were read.
local groups, packed_bytes = groups_of(sizes, FIRST_PART)
local answers, done, rows = {}, {}, groups[1].rows
local change = new_change(part, part_bytes, rows, count, capacity)
for at = 1, #items, packed_bytes + 16 do
  local start = start_of(items, at, groups[1])
  local block = read_block(part, start, rows)
  local seen = are_set(block, items, at, rows) or first_with(groups, items, at, FIRST_PART)
  if not seen and not insert(change, start, block, items, at) then break end
  answers[#answers + 1] = seen and '0' or '1'
  local digest = string.sub(items, at + packed_bytes, at + packed_bytes + 15)
  if session ~= '' and owner_of(claims, digest) == session then done[#done + 1] = digest end
end

if change.items > 0 then
  redis.call('HSET', state, field, format('%d', count + change.items))
  if count == 0 then
    begin_part(part, config_key, state, expires, now)
    sweep(state, oldest, now)
  end
end
if #done > 0 then redis.call('HDEL', claims, unpack(done)) end
return {0, table.concat(answers)}

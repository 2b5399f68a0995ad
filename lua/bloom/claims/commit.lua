-- commit: remember these items in a chosen slice, except those that it or a newer slice holds, and end the session's
-- claims on them. ("tbloom import" uses it without a session.)
--
-- Includes   blocks, changes, claims, clock, layouts, parameters
--
-- KEYS[1]    the filter's parameters
-- KEYS[2]    the layout (shared/layouts.lua)
-- KEYS[3]    the register of parts
-- KEYS[4]    the claims: digest -> session, number, slices, note
-- KEYS[5]    the newest part of the chosen slice: new items go there
-- KEYS[6..]  all other parts of the current slice, of the chosen one and of those between, the newest first of those of
--            one size
--
-- ARGV[1]    the client's parameters
-- ARGV[2]    when the client believes that the current slice begins (ms)
-- ARGV[3]    when it ends (ms)
-- ARGV[4]    when the chosen slice leaves the window (ms)
-- ARGV[5]    1: the parameters may be stored where there are none; 0: they must be agreed on first (open.lua)
-- ARGV[6]    the version of the client's layout; '': it knows of none
-- ARGV[7]    how the chosen slice grows when its newest part is full (grown_layout in shared/layouts.lua); '': never
-- ARGV[8]    the capacity of that part (items)
-- ARGV[9]    its size (bytes)
-- ARGV[10]   the sizes of the parts from KEYS[5] on (groups_of in shared/blocks.lua)
-- ARGV[11]   the client's session, 16 characters; '': none
-- ARGV[12]   the items (groups_of in shared/blocks.lua), each with its digest behind it, 16 bytes
--
-- Reply      {0, answers}     a character per item: 1 remembered now, 0 it was before. Fewer characters than items:
--                             the part is full; the client sends the rest again
--            {1, now}         the server's clock (ms) is not within ARGV[2..3]; nothing changed
--            {2, parameters}  the filter is stored with other parameters; nothing changed
--            {4, ''}          no parameters are stored, and the client has not agreed on them; nothing changed
--            {5, layout}      as for add.lua
--            {6, answers}     the slice is full and may not grow: the item after these was not added, and is still claimed
-- Errors     WRONGTYPE, OOM, READONLY, each before anything is changed
--
-- A second copy of the call finds the items in the filter, and changes nothing.

local config_key, layout_key, register, claims, part = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local FIRST_PART = 5
local config, begins, ends, expires = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local agreed, version, growth, capacity = ARGV[5] == '1', ARGV[6], ARGV[7], tonumber(ARGV[8])
local part_bytes, sizes, session, items = tonumber(ARGV[9]), ARGV[10], ARGV[11], ARGV[12]
local grows = growth ~= ''

local now = server_time()
if now < begins or now >= ends then return {1, now} end

local reply = change_refusal(config_key, config, agreed, layout_key, version, expires, now)
if reply then return reply end
if session ~= '' then redis.call('HLEN', claims) end

-- Another program's key raises WRONGTYPE before anything is changed, because an item is new only after all parts were read.
local groups, packed_bytes = groups_of(sizes, FIRST_PART)
local own, answers, done, status = groups[1], {}, {}, nil
local change = new_change(part, part_bytes, own.rows, capacity, grows)
for at = 1, #items, packed_bytes + 16 do
  local start = start_of(items, at, own)
  local block = read_block(part, start, own.rows)
  local seen = are_set(block, items, at, own.rows) or first_with(groups, items, at, FIRST_PART)
  if not seen then
    status = insert(change, start, block, items, at)
    if status then break end
  end
  answers[#answers + 1] = seen and '0' or '1'
  local digest = string.sub(items, at + packed_bytes, at + packed_bytes + 15)
  if session ~= '' and owner_of(claims, digest) == session then done[#done + 1] = digest end
end

if change.items > 0 then
  local held = count_inserted(change)
  if held == change.items then begin_part(part, register, config_key, layout_key, expires, now) end
  -- Every later call has to know the new part.
  if grows and held >= capacity then
    store_grown(layout_key, redis.call('GET', layout_key), growth, expires, now)
  end
end
if #done > 0 then redis.call('HDEL', claims, unpack(done)) end
return {status or 0, table.concat(answers)}

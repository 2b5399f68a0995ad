-- commit: the work on these items is done. Remembers them in the current slice, also those that an older slice holds,
-- and ends their claims.
--
-- KEYS[1]    the filter's parameters
-- KEYS[2]    the layout: the parts of the slices that have other parts than the usual one
-- KEYS[3]    the register of parts, which shows that the server has dropped a part early
-- KEYS[4]    the claims: fingerprint -> session, number, slices, note
-- KEYS[5]    the current part: the newest part of the current slice, where new items go
-- KEYS[6..]  the older parts of the current slice, newest first
--
-- ARGV[1]    the client's parameters
-- ARGV[2]    when the client believes that the current slice begins (ms)
-- ARGV[3]    when it ends (ms)
-- ARGV[4]    when it leaves the window (ms)
-- ARGV[5]    1: the parameters may be stored where there are none; 0: they must be agreed on first (open.lua)
-- ARGV[6]    the client's layout
-- ARGV[7]    the layout with one more part for the current slice, used when the current part is full; '': never grow
-- ARGV[8]    the capacity of the current part (items)
-- ARGV[9]    the position of the current part's last bit
-- ARGV[10]   which of an item's positions belong to each part from KEYS[5] on (sizes_of in shared/parts.lua)
-- ARGV[11]   the client's session, 16 characters
-- ARGV[12..] for each item its fingerprint, and its positions
--
-- Reply      {0, answers}     a character per item: 1 remembered now, 0 it was before. Fewer characters than items:
--                             the current part is full, or the bits are too many for one command; the client sends
--                             the rest again
--            {0, answers, 1}  the same; the server had dropped the current part early, and it was made anew
--            {1, now}         the server's clock (ms) is not within ARGV[2..3]; nothing changed
--            {2, parameters}  the filter is stored with other parameters; nothing changed
--            {4, ''}          no parameters are stored, and the client has not agreed on them; nothing changed
--            {5, layout}      the stored layout is another one; nothing changed
--            {6, answers}     the slice is full and may not grow: the item after these is still claimed
-- Errors     WRONGTYPE, OOM, READONLY, each before anything is changed
--
-- A second copy of the call finds the items in the filter, and changes nothing.

local config_key, layout_key, register, claims, current = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local config, begins, ends, expires = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local agreed, layout, grown_layout, capacity = ARGV[5] == '1', ARGV[6], ARGV[7], tonumber(ARGV[8])
local last_position, session = ARGV[9], ARGV[11]
local FIRST_PART, FIRST_ITEM = 5, 12
local begins_at, counts, stride = sizes_of(ARGV[10], #KEYS - FIRST_PART + 1)
local grows = grown_layout ~= ''

local now = server_time()
if now < begins or now >= ends then return {1, now} end

local reply, stored = disagreement(config_key, config, agreed, layout_key, layout)
if reply then return reply end
redis.call('HLEN', claims)

-- First all looks, then all changes.
local answers, done, status = {}, {}, nil
local change = {part = current, capacity = capacity, grows = grows, items = 0, words = {}}
for item = FIRST_ITEM, #ARGV, 1 + stride do
  local fingerprint, first = ARGV[item], item + 1 + begins_at[1]
  local zero = first_zero(current, first, counts[1])
  local seen = not zero or is_in_any(FIRST_PART, item + 1, begins_at, counts, 2)
  if not seen then
    status = note_new(change, zero, first + counts[1] - 1)
    if status then break end
  end
  answers[#answers + 1] = seen and '0' or '1'
  if owner_of(claims, fingerprint) == session then done[#done + 1] = fingerprint end
end

local items, dropped = 0, false
if change.items > 0 then
  items, dropped = insert(change, last_position, expires, now, register, config_key, config, stored)
  -- Every later call has to know the new part.
  if grows and items >= capacity then keep(layout_key, grown_layout, expires, now) end
end
if #done > 0 then redis.call('HDEL', claims, unpack(done)) end
return {status or 0, table.concat(answers), dropped and 1 or nil}

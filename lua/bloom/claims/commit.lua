-- commit: the work on these items is done. They are remembered in the current slice, whether or not they are
-- in an older one, and claimed no more.
--
-- KEYS[1]    the filter's parameters
-- KEYS[2]    the layout: the parts of those slices that have not just the one that every slice begins with
-- KEYS[3]    the register of parts, by which one that the server has dropped early is found
-- KEYS[4]    the claims: fingerprint -> session, number, slices, note
-- KEYS[5]    the current part: the newest one of the current slice, where new items go
-- KEYS[6..]  the older parts of the current slice, newest first
--
-- ARGV[1]    the parameters that the caller works with
-- ARGV[2]    when the current slice begins, as the caller believes (ms)
-- ARGV[3]    when it ends (ms)
-- ARGV[4]    when it leaves the window (ms)
-- ARGV[5]    1: the parameters may be stored where there are none; 0: they must be agreed on first (open.lua)
-- ARGV[6]    the layout that the caller knows
-- ARGV[7]    the layout with one more part for the current slice, for when the current part is full; '': never grow
-- ARGV[8]    how many items the current part may hold
-- ARGV[9]    the position of the current part's last bit
-- ARGV[10]   which of an item's positions belong to each part from KEYS[5] on (sizes_of in shared/parts.lua)
-- ARGV[11]   the caller's session, 16 characters
-- ARGV[12..] for each item its fingerprint, and its positions
--
-- Reply      {0, answers}     a character per item: 1 remembered now, 0 it was before. Fewer than items where the
--                             current part is full now, or they are too many for one command: the rest has to be
--                             sent again
--            {0, answers, 1}  the same, and the server had dropped the current part early: it is new now
--            {1, now}         the server's clock (ms) is not within ARGV[2..3]; nothing changed
--            {2, parameters}  the filter is stored with others; nothing changed
--            {4, ''}          no parameters are stored here, and the caller has not agreed on them; nothing changed
--            {5, layout}      the layout is another one; nothing changed
--            {6, answers}     the slice is full, and may not grow: the item after these is still only claimed
-- Errors     WRONGTYPE, OOM, READONLY, all of them before anything is changed
--
-- Sent again, it finds the items there, and changes nothing.

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
local answers, done, new, words, room, status = {}, {}, 0, {}, nil, 0
for item = FIRST_ITEM, #ARGV, 1 + stride do
  local fingerprint, own = ARGV[item], item + 1 + begins_at[1]
  local zero = first_zero(current, own, counts[1])
  local seen = not zero or is_in_any(FIRST_PART, item + 1, begins_at, counts, 2)
  if not seen then
    -- There is always room for one, if the slice may grow.
    if new > 0 or not grows then room = room or capacity - items_in(current) end
    if room and new >= room then
      if not grows then status = 6 end
      break
    end
    if not can_note(words, counts[1]) then break end
    new = new + 1
    note_bits(words, zero, own + counts[1] - 1)
  end
  answers[#answers + 1] = seen and '0' or '1'
  if owner_of(claims, fingerprint) == session then done[#done + 1] = fingerprint end
end

local items, dropped = 0, false
if new > 0 then
  items, dropped = insert(current, new, words, last_position, expires, now, register, config_key, config, stored)
  -- Whoever comes next, this call's other items too, has to know the new part.
  if grows and items >= capacity then keep(layout_key, grown_layout, expires, now) end
end
if #done > 0 then redis.call('HDEL', claims, unpack(done)) end
return {status, table.concat(answers), dropped and 1 or nil}

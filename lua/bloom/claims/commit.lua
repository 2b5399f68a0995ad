-- commit: remember these items in a chosen slice, except those that it or a newer slice holds, and end the session's
-- claims on them. ("tbloom import" uses it without a session.)
--
-- KEYS[1]    the filter's parameters
-- KEYS[2]    the layout: the parts of the slices that have other parts than the usual one
-- KEYS[3]    the register of parts, which shows that the server has dropped a part early
-- KEYS[4]    the claims: fingerprint -> session, number, slices, note
-- KEYS[5..]  all parts of the current slice, of the chosen one and of those between, newest first
--
-- ARGV[1]    the client's parameters
-- ARGV[2]    when the client believes that the current slice begins (ms)
-- ARGV[3]    when it ends (ms)
-- ARGV[4]    when the chosen slice leaves the window (ms)
-- ARGV[5]    1: the parameters may be stored where there are none; 0: they must be agreed on first (open.lua)
-- ARGV[6]    the client's layout
-- ARGV[7]    the layout with one more part for the chosen slice, used when its newest part is full; '': never grow
-- ARGV[8]    the capacity of its newest part (items)
-- ARGV[9]    the position of that part's last bit
-- ARGV[10]   which of an item's positions belong to each part from KEYS[5] on (sizes_of in shared/parts.lua)
-- ARGV[11]   the number, from KEYS[5] on, counted from 1, of the chosen slice's newest part: new items go there
-- ARGV[12]   the client's session, 16 characters; '': none
-- ARGV[13..] for each item its fingerprint, if there is a session, and its positions
--
-- Reply      {0, answers}     a character per item: 1 remembered now, 0 it was before. Fewer characters than items:
--                             the part is full, or the bits are too many for one command; the client sends the rest
--                             again
--            {0, answers, 1}  the same; the server had dropped the part early, and it was made anew
--            {1, now}         the server's clock (ms) is not within ARGV[2..3]; nothing changed
--            {2, parameters}  the filter is stored with other parameters; nothing changed
--            {4, ''}          no parameters are stored, and the client has not agreed on them; nothing changed
--            {5, layout}      the stored layout is another one; nothing changed
--            {6, answers}     the slice is full and may not grow: the item after these was not added, and is still claimed
-- Errors     WRONGTYPE, OOM, READONLY, each before anything is changed
--
-- A second copy of the call finds the items in the filter, and changes nothing.

local config_key, layout_key, register, claims = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local FIRST_PART, FIRST_ITEM = 5, 13
local config, begins, ends, expires = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local agreed, layout, grown_layout, capacity = ARGV[5] == '1', ARGV[6], ARGV[7], tonumber(ARGV[8])
local last_position, own, session = ARGV[9], tonumber(ARGV[11]), ARGV[12]
local begins_at, counts, stride = sizes_of(ARGV[10], #KEYS - FIRST_PART + 1)
local chosen = KEYS[FIRST_PART - 1 + own]
local grows, before = grown_layout ~= '', session == '' and 0 or 1

local now = server_time()
if now < begins or now >= ends then return {1, now} end

local reply, stored = disagreement(config_key, config, agreed, layout_key, layout)
if reply then return reply end
if session ~= '' then redis.call('HLEN', claims) end

-- A missing part holds nothing: it is not looked at for each item.
local others = {}
for part = 1, #begins_at do
  if part ~= own and redis.call('EXISTS', KEYS[FIRST_PART - 1 + part]) == 1 then others[#others + 1] = part end
end

local function is_elsewhere(item)
  for _, part in ipairs(others) do
    if not first_zero(KEYS[FIRST_PART - 1 + part], item + begins_at[part], counts[part]) then return true end
  end
  return false
end

-- First all looks, then all changes.
local answers, done, status = {}, {}, nil
local change = {part = chosen, capacity = capacity, grows = grows, items = 0, words = {}}
for item = FIRST_ITEM, #ARGV, before + stride do
  local first = item + before + begins_at[own]
  local zero = first_zero(chosen, first, counts[own])
  local seen = not zero or is_elsewhere(item + before)
  if not seen then
    status = note_new(change, zero, first + counts[own] - 1)
    if status then break end
  end
  answers[#answers + 1] = seen and '0' or '1'
  if session ~= '' and owner_of(claims, ARGV[item]) == session then done[#done + 1] = ARGV[item] end
end

local items, dropped = 0, false
if change.items > 0 then
  items, dropped = insert(change, last_position, expires, now, register, config_key, config, stored)
  -- Every later call has to know the new part.
  if grows and items >= capacity then keep(layout_key, grown_layout, expires, now) end
end
if #done > 0 then redis.call('HDEL', claims, unpack(done)) end
return {status or 0, table.concat(answers), dropped and 1 or nil}

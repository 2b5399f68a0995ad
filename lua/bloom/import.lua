-- import: remember these items in a slice of choice, but for those that it or a newer slice holds already.
--
-- KEYS[1]    the filter's parameters
-- KEYS[2]    the layout: the parts of those slices that have not just the one that every slice begins with
-- KEYS[3]    the register of parts, by which one that the server has dropped early is found
-- KEYS[4..]  all parts of the current slice, of the chosen one and of those between, newest first
--
-- ARGV[1]    the parameters that the caller works with
-- ARGV[2]    when the current slice begins, as the caller believes (ms)
-- ARGV[3]    when it ends (ms)
-- ARGV[4]    when the chosen slice leaves the window (ms)
-- ARGV[5]    1: the parameters may be stored where there are none; 0: they must be agreed on first (open.lua)
-- ARGV[6]    the layout that the caller knows
-- ARGV[7]    the layout with one more part for the chosen slice, for when its newest part is full; '': never grow
-- ARGV[8]    how many items its newest part may hold
-- ARGV[9]    the position of that part's last bit
-- ARGV[10]   which of an item's positions belong to each part from KEYS[4] on (sizes_of in shared/parts.lua)
-- ARGV[11]   which part from KEYS[4] on, counted from 1, is the newest one of the chosen slice: new items go there
-- ARGV[12..] the items' positions
--
-- Reply      {0, answers}     a character per item: 1 remembered now, 0 it was before. Fewer than items where the
--                             part is full now, or they are too many for one command: the rest has to be sent again
--            {0, answers, 1}  the same, and the server had dropped the part early: it is new now
--            {1, now}         the server's clock (ms) is not within ARGV[2..3]; nothing changed
--            {2, parameters}  the filter is stored with others; nothing changed
--            {4, ''}          no parameters are stored here, and the caller has not agreed on them; nothing changed
--            {5, layout}      the layout is another one; nothing changed
--            {6, answers}     the slice is full, and may not grow: the item after these was not added
-- Errors     WRONGTYPE, OOM, READONLY, all of them before anything is changed
--
-- Sent again, it finds the items there, and changes nothing.

local config_key, layout_key, register = KEYS[1], KEYS[2], KEYS[3]
local FIRST_PART, FIRST_ITEM = 4, 12
local config, begins, ends, expires = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local agreed, layout, grown_layout, capacity = ARGV[5] == '1', ARGV[6], ARGV[7], tonumber(ARGV[8])
local last_position, own = ARGV[9], tonumber(ARGV[11])
local begins_at, counts, stride = sizes_of(ARGV[10], #KEYS - FIRST_PART + 1)
local chosen = KEYS[FIRST_PART - 1 + own]
local grows = grown_layout ~= ''

local now = server_time()
if now < begins or now >= ends then return {1, now} end

local reply, stored = disagreement(config_key, config, agreed, layout_key, layout)
if reply then return reply end

-- A part that is not there holds nothing: it is not looked at for each item.
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
local answers, new, words, room, status = {}, 0, {}, nil, 0
for item = FIRST_ITEM, #ARGV, stride do
  local first = item + begins_at[own]
  local zero = first_zero(chosen, first, counts[own])
  local seen = not zero or is_elsewhere(item)
  if not seen then
    -- There is always room for one, if the slice may grow.
    if new > 0 or not grows then room = room or capacity - items_in(chosen) end
    if room and new >= room then
      if not grows then status = 6 end
      break
    end
    if not can_note(words, counts[own]) then break end
    new = new + 1
    note_bits(words, zero, first + counts[own] - 1)
  end
  answers[#answers + 1] = seen and '0' or '1'
end

local items, dropped = 0, false
if new > 0 then
  items, dropped = insert(chosen, new, words, last_position, expires, now, register, config_key, config, stored)
  -- Whoever comes next, this call's other items too, has to know the new part.
  if grows and items >= capacity then keep(layout_key, grown_layout, expires, now) end
end
return {status, table.concat(answers), dropped and 1 or nil}

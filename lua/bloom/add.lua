-- add: which of these items are new? Those that are, are remembered in the current slice.
--
-- KEYS[1]    the caller's lane: the token and the answer of its last call that changed something
-- KEYS[2]    the filter's parameters
-- KEYS[3]    the layout: the parts of those slices that have not just the one that every slice begins with
-- KEYS[4]    the register of parts, by which one that the server has dropped early is found
-- KEYS[5]    the current part: the newest one of the current slice, where new items go
-- KEYS[6..]  all older parts of live slices, newest first
--
-- ARGV[1]    this call's number in its lane; with the lane's name, its token
-- ARGV[2]    the parameters that the caller works with
-- ARGV[3]    when the current slice begins, as the caller believes (ms)
-- ARGV[4]    when it ends (ms)
-- ARGV[5]    when it leaves the window (ms)
-- ARGV[6]    how long a lane is kept at most (ms)
-- ARGV[7]    1: the parameters may be stored where there are none; 0: they must be agreed on first (open.lua)
-- ARGV[8]    the layout that the caller knows
-- ARGV[9]    the layout with one more part for the current slice, for when the current part is full; '': never grow
-- ARGV[10]   how many items the current part may hold
-- ARGV[11]   the position of the current part's last bit
-- ARGV[12]   which of an item's positions belong to each part from KEYS[5] on (sizes_of in shared/parts.lua)
-- ARGV[13..] the items' positions
--
-- Reply      {0, answers}     a character per item: 1 new, 0 seen. Fewer than items where the current part is
--                             full now, or they are too many for one command: the rest has to be asked again
--            {0, answers, 1}  the same, and the server had dropped the current part early: it is new now
--            {1, now}         the server's clock (ms) is not within ARGV[3..4]; nothing changed
--            {2, parameters}  the filter is stored with others; nothing changed
--            {3, number}      the lane is further on: this is a stray copy of an answered call; nothing changed
--            {4, ''}          no parameters are stored here, and the caller has not agreed on them; nothing changed
--            {5, layout}      the layout is another one; nothing changed
--            {6, answers}     the slice is full, and may not grow: the item after these is new, but was not added
-- Errors     WRONGTYPE, OOM, READONLY, all of them before anything is changed

local lane_key, config_key, layout_key, register, current = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local FIRST_PART, FIRST_ITEM = 5, 13
local number, config = tonumber(ARGV[1]), ARGV[2]
local begins, ends, expires = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local lane_ttl, agreed = tonumber(ARGV[6]), ARGV[7] == '1'
local layout, grown_layout, capacity = ARGV[8], ARGV[9], tonumber(ARGV[10])
local last_position = ARGV[11]
local begins_at, counts, stride = sizes_of(ARGV[12], #KEYS - FIRST_PART + 1)
local grows = grown_layout ~= ''

-- The token comes first: a call that is sent again gets its first answer, whatever has changed since.
local stored = redis.call('MGET', config_key, lane_key)
if stored[2] then
  local last, answers = string.match(stored[2], '^(%d+):(%d*)$')
  last = tonumber(last) or 0
  if last == number then return {0, answers} end
  if last > number then return {3, last} end
end

local now = server_time()
if now < begins or now >= ends then return {1, now} end

if stored[1] and stored[1] ~= config then return {2, stored[1]} end
-- MGET shows a key of another type as a missing one; GET raises WRONGTYPE.
if not stored[1] then redis.call('GET', config_key) end
if not stored[1] and not agreed then return {4, ''} end
local stored_layout = redis.call('GET', layout_key) or ''
if stored_layout ~= layout then return {5, stored_layout} end

-- First all looks, then all changes. (Of two items of one call, neither sees the other's bits.)
local answers, new, words, room, status = {}, 0, {}, nil, 0
for item = FIRST_ITEM, #ARGV, stride do
  local own = item + begins_at[1]
  local zero = first_zero(current, own, counts[1])
  local seen = not zero or is_in_any(FIRST_PART, item, begins_at, counts, 2)
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
end
answers = table.concat(answers)

-- Without a new item nothing is changed, so sending the call again is safe as it is.
if new == 0 then return {status, answers} end

local items, dropped =
  insert(current, new, words, last_position, expires, now, register, config_key, config, stored[1])
-- Whoever comes next, this call's other items too, has to know the new part.
if grows and items >= capacity then keep(layout_key, grown_layout, expires, now) end
redis.call('SET', lane_key, ARGV[1] .. ':' .. answers, 'PX', math.min(lane_ttl, expires - now))
return {status, answers, dropped and 1 or nil}

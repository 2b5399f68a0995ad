-- add: which of these items are new? Those that are, are remembered in the current slice.
--
-- KEYS[1]    the filter's parameters
-- KEYS[2]    the caller's lane: the token and the answer of its last call that changed something
-- KEYS[3]    the layout: the parts of those slices that have not just the one that every slice begins with
-- KEYS[4]    the current part: the newest one of the current slice, where new items go
-- KEYS[5..]  all older parts of live slices, newest first
--
-- ARGV[1]    the parameters that the caller works with
-- ARGV[2]    this call's number in its lane; with the lane's name, its token
-- ARGV[3]    when the current slice begins, as the caller believes (ms)
-- ARGV[4]    when it ends (ms)
-- ARGV[5]    when it leaves the window (ms)
-- ARGV[6]    how long a lane is kept at most (ms)
-- ARGV[7]    1: the parameters may be stored where there are none; 0: they must be agreed on first (open.lua)
-- ARGV[8]    the layout that the caller knows
-- ARGV[9]    the layout with one more part for the current slice, for when the current part is full; '': never grow
-- ARGV[10]   how many items the current part may hold
-- ARGV[11]   the position of the current part's last bit
-- ARGV[12]   for each part from KEYS[4] on, which of an item's groups of positions is its own: 1 2 1 ...
-- ARGV[13..] one item each: the positions of its bits, decimal, separated by spaces; a group for each size
--            that parts have, separated by |
--
-- Reply      {0, answers}     a character per item: 1 new, 0 seen. Fewer than items where the current part is
--                             full now: then the layout has changed, and the rest has to be asked again
--            {1, now}         the server's clock (ms) is not within ARGV[3..4]; nothing changed
--            {2, parameters}  the filter is stored with others; nothing changed
--            {3, number}      the lane is further on: this is a stray copy of an answered call; nothing changed
--            {4, ''}          no parameters are stored here, and the caller has not agreed on them; nothing changed
--            {5, layout}      the layout is another one; nothing changed
--            {6, answers}     the slice is full, and may not grow: the item after these is new, but was not added
-- Errors     WRONGTYPE, OOM, READONLY, all of them before anything is changed

local config_key, lane_key, layout_key, current, FIRST_PART = KEYS[1], KEYS[2], KEYS[3], KEYS[4], 4
local config, number = ARGV[1], tonumber(ARGV[2])
local begins, ends, expires = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local lane_ttl, agreed = tonumber(ARGV[6]), ARGV[7] == '1'
local layout, grown_layout, capacity = ARGV[8], ARGV[9], tonumber(ARGV[10])
local last_position, group_list = ARGV[11], ARGV[12]
local FIRST_ITEM = 13
local grows = grown_layout ~= ''

-- The token comes first: a call that is sent again gets its first answer, whatever has changed since.
local stored = redis.call('MGET', config_key, lane_key, layout_key)
if stored[2] then
  local last, answers = string.match(stored[2], '^(%d+):(%d*)$')
  last = tonumber(last)
  if last == number then return {0, answers} end
  if last > number then return {3, last} end
end

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if now < begins or now >= ends then return {1, now} end

if stored[1] and stored[1] ~= config then return {2, stored[1]} end
-- MGET shows a key of another type as a missing one; GET raises WRONGTYPE.
if not stored[1] then redis.call('GET', config_key) end
if not stored[1] and not agreed then return {4, ''} end
if (stored[3] or '') ~= layout then return {5, stored[3] or ''} end

local group_of = {}
for group in string.gmatch(group_list, '%d+') do group_of[#group_of + 1] = tonumber(group) end

-- The first of the item's bits that is 0 in the part, or nil if it holds the item.
local function first_zero(part, positions)
  for i = 1, #positions do
    if redis.call('GETBIT', part, positions[i]) == 0 then return i end
  end
end

local function is_full()
  return redis.call('BITFIELD_RO', current, 'GET', 'u48', '0')[1] >= capacity
end

-- Returns how many items the current part holds then.
local function remember(positions, from)
  if not stored[1] then
    redis.call('SET', config_key, config, 'PXAT', expires)
    stored[1] = config
  end
  -- One call counts the item in the part's header and sets the bits that are missing. Touching the last
  -- bit makes Redis allocate a new part at its full size, once; grown bit by bit it would take up to twice that.
  local fields = {'INCRBY', 'u48', '0', '1', 'INCRBY', 'u1', last_position, '0'}
  for i = from, #positions do
    local n = #fields
    fields[n + 1], fields[n + 2], fields[n + 3], fields[n + 4] = 'SET', 'u1', positions[i], '1'
  end
  local items = redis.call('BITFIELD', current, unpack(fields))[1]
  if items == 1 then
    -- The part was created just now: it and the parameters live until its slice leaves the window.
    -- (Never shorter than now: a clock set back makes an older slice after a newer one.)
    redis.call('PEXPIREAT', current, expires)
    if redis.call('PTTL', config_key) < expires - now then
      redis.call('PEXPIREAT', config_key, expires)
    end
  end
  return items
end

local answers, any_new, status = {}, false, 0
for item = FIRST_ITEM, #ARGV do
  local groups = {}
  for group in string.gmatch(ARGV[item], '[^|]+') do
    local positions = {}
    for position in string.gmatch(group, '%d+') do positions[#positions + 1] = position end
    groups[#groups + 1] = positions
  end
  local zero = first_zero(current, groups[group_of[1]])
  local seen = not zero
  for older = 2, #group_of do
    if seen then break end
    seen = not first_zero(KEYS[FIRST_PART - 1 + older], groups[group_of[older]])
  end
  if not seen and not grows and is_full() then
    status = 6
    break
  end
  answers[#answers + 1] = seen and '0' or '1'
  if not seen then
    any_new = true
    if remember(groups[group_of[1]], zero) >= capacity and grows then
      -- Whoever comes next, this call's other items too, has to know the new part.
      if redis.call('PTTL', layout_key) < expires - now then
        redis.call('SET', layout_key, grown_layout, 'PXAT', expires)
      else
        redis.call('SET', layout_key, grown_layout, 'KEEPTTL')
      end
      break
    end
  end
end

answers = table.concat(answers)
-- Without a new item nothing was changed, so sending the call again is safe as it is.
if any_new then
  redis.call('SET', lane_key, ARGV[2] .. ':' .. answers, 'PX', math.min(lane_ttl, expires - now))
end
return {status, answers}

-- add: which of these items are new? Remembers the new ones in the current slice.
--
-- KEYS[1]    the client's lane (shared/tokens.lua)
-- KEYS[2]    the filter's parameters
-- KEYS[3]    the layout: the generation, 16 digits; then the parts of the slices that have other parts than the usual one
-- KEYS[4]    the register of parts, which shows that the server has dropped a part early
-- KEYS[5]    the current part: the newest part of the current slice, where new items go
-- KEYS[6..]  all older parts of live slices, newest first
--
-- ARGV[1]    the call's number in its lane; lane and number are its token
-- ARGV[2]    the client's parameters
-- ARGV[3]    when the client believes that the current slice begins (ms)
-- ARGV[4]    when it ends (ms)
-- ARGV[5]    when it leaves the window (ms)
-- ARGV[6]    how long a lane is kept at most (ms)
-- ARGV[7]    1: the parameters may be stored where there are none; 0: they must be agreed on first (open.lua)
-- ARGV[8]    the client's layout; '': it knows of none
-- ARGV[9]    the layout with one more part for the current slice, used when the current part is full; '': never grow
-- ARGV[10]   the capacity of the current part (items)
-- ARGV[11]   the sizes of the parts from KEYS[5] on (groups_of in shared/blocks.lua)
-- ARGV[12]   the items (find_block in shared/blocks.lua)
--
-- Reply      {0, answers}     a character per item: 1 new, 0 seen. Fewer characters than items: the current part is
--                             full; the client sends the rest again
--            {0, answers, 1}  the same; the server had dropped the current part early, and it was made anew
--            {1, now}         the server's clock (ms) is not within ARGV[3..4]; nothing changed
--            {2, parameters}  the filter is stored with other parameters; nothing changed
--            {3, number}      the lane is at a later call: this is a stray copy of an answered one; nothing changed
--            {4, ''}          no parameters are stored, and the client has not agreed on them; nothing changed
--            {5, layout}      the stored layout is another one; nothing changed. With '' in ARGV[8], and no layout: the
--                             parameters and a layout were stored, and no item
--            {6, answers}     the slice is full and may not grow: the item after these is new, and was not added
-- Errors     WRONGTYPE, OOM, READONLY, each before anything is changed

local lane_key, config_key, layout_key, register, current = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local FIRST_PART = 5
local number, config = tonumber(ARGV[1]), ARGV[2]
local begins, ends, expires = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local lane_ttl, agreed = tonumber(ARGV[6]), ARGV[7] == '1'
local layout, grown_layout, capacity, sizes, items = ARGV[8], ARGV[9], tonumber(ARGV[10]), ARGV[11], ARGV[12]
local grows = grown_layout ~= ''

-- The token comes first: a call that is sent again gets its first answer, whatever has changed since, unless the filter
-- was cleared.
local stored = redis.call('MGET', config_key, layout_key, lane_key)
local generation = string.sub(stored[2] or '', 1, 16)
local earlier, last = kept_answers(stored[3], number, generation)
if earlier then return {0, earlier} end
if last then return {3, last} end

local now = server_time()
if now < begins or now >= ends then return {1, now} end

-- MGET shows a key of another type as a missing one; `refusal` raises WRONGTYPE.
if stored[1] ~= config or stored[2] ~= layout then
  return refusal(config_key, config, agreed, layout_key, layout, expires, now)
end

-- First all looks, then all changes.
local groups, item_bytes = groups_of(sizes, FIRST_PART)
local change, answers, status = new_change(current, groups[1], capacity, grows), {}, nil
for at = 1, #items, item_bytes do
  local columns = find_block(items, at, item_bytes, groups)
  local block = block_of(change)
  local seen = are_set(block, columns, 1, groups[1].rows) or first_with(groups, columns, FIRST_PART)
  if not seen then
    status = note_new(change, block, columns)
    if status then break end
  end
  answers[#answers + 1] = seen and '0' or '1'
end
status, answers = status or 0, table.concat(answers)

-- Without a new item nothing changes, so the call is safe to send again without a token.
if change.items == 0 then return {status, answers} end

local held, dropped = insert(change, expires, now, register, config_key, layout_key)
-- Every later call has to know the new part.
if grows and held >= capacity then keep(layout_key, grown_layout, expires, now) end
redis.call('SET', lane_key, lane_entry(ARGV[1], answers, generation), 'PX', math.min(lane_ttl, expires - now))
return {status, answers, dropped and 1 or nil}

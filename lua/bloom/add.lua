-- add: which of these items are new? Remembers the new ones in the current slice, or in a chosen older one, which leaves the
-- window earlier.
--
-- Includes   blocks, changes, clock, layouts, parameters, tokens
--
-- KEYS[1]    the client's lane (shared/tokens.lua)
-- KEYS[2]    the filter's parameters
-- KEYS[3]    the layout (shared/layouts.lua)
-- KEYS[4]    the register of parts
-- KEYS[5]    the chosen part: the newest part of the chosen slice, where new items go
-- KEYS[6..]  all other parts of live slices, the newest first of those of one size
--
-- ARGV[1]    the call's number in its lane; lane and number are its token
-- ARGV[2]    the client's parameters
-- ARGV[3]    when the client believes that the current slice begins (ms)
-- ARGV[4]    when it ends (ms)
-- ARGV[5]    when the chosen slice leaves the window (ms)
-- ARGV[6]    how long a lane is kept at most (ms)
-- ARGV[7]    1: the parameters may be stored where there are none; 0: they must be agreed on first (open.lua)
-- ARGV[8]    the version of the client's layout; '': it knows of none
-- ARGV[9]    how the chosen slice grows when the chosen part is full (grown_layout in shared/layouts.lua); '': never
-- ARGV[10]   the capacity of the chosen part (items)
-- ARGV[11]   the size of the chosen part (bytes)
-- ARGV[12]   the sizes of the parts from KEYS[5] on (groups_of in shared/blocks.lua)
-- ARGV[13]   the items (groups_of in shared/blocks.lua)
--
-- Reply      {0, answers}     a character per item: 1 new, 0 seen. Fewer characters than items: the chosen part is
--                             full; the client sends the rest again
--            {1, now}         the server's clock (ms) is not within ARGV[3..4]; nothing changed
--            {2, parameters}  the filter is stored with other parameters; nothing changed
--            {3, number}      the lane is at a later call: this is a stray copy of an answered one; nothing changed
--            {4, ''}          no parameters are stored, and the client has not agreed on them; nothing changed
--            {5, layout}      the stored layout has another version; nothing changed. With '' in ARGV[8], and no layout:
--                             the parameters and a layout were stored, and no item
--            {6, answers}     the chosen slice is full and may not grow: the item after these is new, and was not added
-- Errors     WRONGTYPE, OOM, READONLY, each before anything is changed

local lane_key, config_key, layout_key, register, chosen = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local FIRST_PART = 5
local number, config = tonumber(ARGV[1]), ARGV[2]
local begins, ends, expires = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local lane_ttl, agreed, version = tonumber(ARGV[6]), ARGV[7] == '1', ARGV[8]
local growth, capacity, part_bytes, sizes, items = ARGV[9], tonumber(ARGV[10]), tonumber(ARGV[11]), ARGV[12], ARGV[13]
local grows = growth ~= ''

-- The token comes first: a call that is sent again gets its first answer, whatever has changed since, unless the filter
-- was cleared.
local stored = redis.call('MGET', config_key, layout_key, lane_key)
local layout = stored[2] or ''
local generation = string.sub(layout, 1, 16)
local earlier, last = kept_answers(stored[3], number, generation)
if earlier then return {0, earlier} end
if last then return {3, last} end

local now = server_time()
if now < begins or now >= ends then return {1, now} end

-- MGET shows a key of another type as a missing one; `refusal` raises WRONGTYPE.
if stored[1] ~= config or not stored[2] or layout ~= version and version_of(layout) ~= version then
  return change_refusal(config_key, config, agreed, layout_key, version, expires, now)
end

-- Another program's key raises WRONGTYPE before anything is changed, because an item is new only after all parts were read.
local groups, item_bytes = groups_of(sizes, FIRST_PART)
local own, answers, status = groups[1], {}, 0
local rows, change = own.rows, new_change(chosen, part_bytes, own.rows, capacity, grows)
for at = 1, #items, item_bytes do
  local start = start_of(items, at, own)
  local block = read_block(chosen, start, rows)
  local seen = are_set(block, items, at, rows) or first_with(groups, items, at, FIRST_PART)
  if not seen then
    local refused = insert(change, start, block, items, at)
    if refused then
      status = refused
      break
    end
  end
  answers[#answers + 1] = seen and '0' or '1'
end
answers = table.concat(answers)

-- Without a new item nothing changes, so the call is safe to send again without a token.
if change.items == 0 then return {status, answers} end

local held = count_inserted(change)
if held == change.items then begin_part(chosen, register, config_key, layout_key, expires, now) end
-- Every later call has to know the new part.
if grows and held >= capacity then store_grown(layout_key, layout, growth, expires, now) end
redis.call('SET', lane_key, lane_entry(ARGV[1], answers, generation), 'PX', math.min(lane_ttl, expires - now))
return {status, answers}

-- add: which of these items are new? Remembers the new ones in the current slice, or in a chosen older one, which leaves the
-- window earlier.
--
-- Includes   blocks, calls, changes, clock, keys, lanes, layouts
--
-- KEYS[1]    the filter's parameters
-- KEYS[2]    its state, a hash: 'layout' (shared/layouts.lua); for each part the number of its items; lanes (shared/lanes.lua)
-- KEYS[3]    the chosen part: the newest part of the chosen slice, where new items go
-- KEYS[4..]  all other parts of live slices, the newest first of those of one size
--
-- ARGV[1]    the token (shared/lanes.lua)
-- ARGV[2]    what the calls of the slice share (shared/calls.lua)
-- ARGV[3]    the items (groups_of in shared/blocks.lua)
--
-- Reply      {0, answers}     a character per item: 1 new, 0 seen. Fewer characters than items: the chosen part is
--                             full, and the item after these is new, and was not added (set_layout.lua)
--            {1, now}         the server's clock (ms) is not within the current slice; nothing changed
--            {3, number}      the lane is at a later call: this is a stray copy of an answered one; nothing changed
--            {4, ''}          there is no such filter, or not any more (open.lua begins one); nothing changed
--            {5, layout, parameters}  the stored layout has another version; nothing changed
-- Errors     WRONGTYPE, OOM, READONLY, each before anything is changed

local config_key, state, chosen, FIRST_PART = KEYS[1], KEYS[2], KEYS[3], 3
local number, lane = read_token(ARGV[1])
local begins, ends, expires, capacity, part_bytes, version, field, oldest, sizes = read_constants(ARGV[2])
local items = ARGV[3]

-- The token comes first: a call that is sent again gets its first answer, whatever has changed since.
local stored = redis.call('HMGET', state, 'layout', lane, field)
local layout, entry, count = stored[1], stored[2], items_in(stored[3])
local earlier, last = answers_in(entry, number)
if earlier then return {0, earlier} end
if last then return {3, last} end

local now = server_time()
if now < begins or now >= ends then return {1, now} end
if version_of(layout or '') ~= version or not layout then return other_layout(layout, config_key) end

-- Another program's key raises WRONGTYPE before anything is changed, because an item is new only after all parts were read.
local groups, item_bytes = groups_of(sizes, FIRST_PART)
local answers, rows = {}, groups[1].rows
local change = new_change(chosen, part_bytes, rows, count, capacity)
for at = 1, #items, item_bytes do
  local start = start_of(items, at, groups[1])
  local block = read_block(chosen, start, rows)
  local seen = are_set(block, items, at, rows) or first_with(groups, items, at, FIRST_PART)
  if not seen and not insert(change, start, block, items, at) then break end
  answers[#answers + 1] = seen and '0' or '1'
end
answers = table.concat(answers)

-- Without a new item no answer changes, so the call is safe to send again without a token.
if change.items == 0 then return {0, answers} end

local held = format('%d', count + change.items)
redis.call('HSET', state, lane, lane_entry(number, answers, now), field, held)
if count == 0 then begin_part(chosen, config_key, state, expires, now) end
if not entry or count == 0 then sweep(state, count == 0 and oldest or '', now) end
return {0, answers}

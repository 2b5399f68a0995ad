-- add: which of these items are new? Remembers the new ones in the current slice, or in a chosen older one, which leaves the
-- window earlier.
--
-- Includes   blocks, header, lanes
--
-- KEYS[1]    the filter's parameters
-- KEYS[2]    its state, a hash: 'layout' (shared/layouts.lua); for each part the number of its items; lanes (shared/lanes.lua)
-- KEYS[3]    the chosen part: the newest part of the chosen slice, where new items go
-- KEYS[4..]  all other parts of live slices, the newest first of those of one size
--
-- ARGV[1]    the token (shared/lanes.lua)
-- ARGV[2]    the header (shared/header.lua)
-- ARGV[3]    the items (shared/blocks.lua); none, to end a call that got no reply: a late copy of it changes nothing then
--
-- Reply      {0, answers}     a character per item: 1 new, 0 seen. Fewer characters than items: the chosen part is
--                             full, and the item after these is new, and was not added (set_layout.lua)
--            {3, number}      the lane is at a later call: this is a stray copy of an answered one; nothing changed
--            {1, now}, {4, ''}, {5, layout, parameters}  refused (shared/header.lua); nothing changed
-- Errors     WRONGTYPE, OOM, READONLY, each before anything is changed

local config_key, state, FIRST_PART = KEYS[1], KEYS[2], 3
local number, lane = read_token(ARGV[1])
local begins, ends, expires, capacity, part_bytes, columns, version, field, oldest, sizes = read_header(ARGV[2])
local items, item_bytes = ARGV[3], columns + 4 * #sizes / 3

-- The token comes first: a call that is sent again gets its first answer, whatever has changed since.
local stored = redis.call('HMGET', state, 'layout', lane)
local layout, entry = stored[1], stored[2]
local earlier, last = answers_in(entry, number)
if earlier then return {0, earlier} end
if last then return {3, last} end

local now, refused = refusal(begins, ends, layout, version, config_key)
if refused then return refused end

local at, start, block = next_new(items, 1, item_bytes, sizes, columns, FIRST_PART)
if items == '' then redis.call('HSET', state, lane, lane_entry(number, '', now)) end
-- Without a new item no answer changes, so the call is safe to send again without a token.
if not at then return {0, string.rep('0', #items / item_bytes)} end

-- Included here, because most calls have ended by now: to make these functions takes 1 us, and such a call 12.
-- Includes   changes
-- '': the part begins, or the server has dropped it, and its items with it.
local count = block == '' and 0 or items_in(redis.call('HGET', state, field))
local answers, new = insert_new(at, start, block, items, item_bytes, sizes, columns, FIRST_PART, part_bytes, capacity - count)
if new == 0 then return {0, answers} end

redis.call('HSET', state, lane, lane_entry(number, answers, now), field, argument(count + new))
keep_ttls(FIRST_PART, count == 0, config_key, state, expires, oldest, now)
if count > 0 and not entry then sweep(state, '', now) end
return {0, answers}

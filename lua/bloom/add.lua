-- add: answer which items are new, and add these to the chosen slice. The chosen slice is the current one, or an older one,
-- which leaves the window earlier.
--
-- Includes   blocks, calls
--
-- KEYS[1]    the filter's parameters
-- KEYS[2]    the filter's state, a hash: the layout (shared/generations.lua), the number of items in each part, and the lanes
--            (shared/lanes.lua)
-- KEYS[3]    the chosen part: the newest part of the chosen slice. New items go there
-- KEYS[4..]  all other parts of live slices, grouped by part size; the newest first in a group
--
-- ARGV[1]    the token (shared/lanes.lua)
-- ARGV[2]    the header (shared/header.lua)
-- ARGV[3]    the items (shared/blocks.lua). Without items, the call voids its token: a late copy of an earlier call with
--            this token changes nothing
--
-- Reply      {0, answers}     a character per item: 1 new, 0 seen. With fewer characters than items, the chosen part is full:
--                             the next item is new, and was not added (set_layout.lua)
--            {3, number}      the lane has had a later call: this is a stray copy of an answered call; nothing changed
--            {1, now}, {4, ''}, {5, layout, parameters}  refused (shared/header.lua); nothing changed
-- Errors     WRONGTYPE, OOM (not without items), READONLY, each before anything is changed

local config_key, state, FIRST_PART = KEYS[1], KEYS[2], 3
local number, lane = read_token(ARGV[1])
local begins, ends, version, column_bytes, sizes = read_header(ARGV[2])
local items, item_bytes = ARGV[3], column_bytes + 4 * #sizes / 3

local refused, now, entry = begin_call(state, config_key, number, lane, begins, ends, version)
if refused then return refused end

local pieces = unseen(items, item_bytes, sizes, column_bytes, FIRST_PART)
local _, piece = next(pieces)
-- Without a new item, a resent call finds the same answers, so the lane need not keep them.
if not piece and items ~= '' then return {0, string.rep('0', #items / item_bytes)} end

-- These functions are included here, because most calls have returned above: defining them takes as long as a tenth of such a
-- call.
-- Includes   changes
if items == '' then
  redis.call('HDEL', state, lane) -- a server whose memory is full takes this as the first write, and then the next one
  redis.call('HSET', state, lane, lane_entry(number, '', now))
  return {0, ''}
end
local expires, capacity, part_bytes, field, oldest = read_chosen(ARGV[2])
local part = KEYS[FIRST_PART]
local count = count_in(part, part_bytes, piece, state, field)
local answers, new = insert_new(pieces, items, item_bytes, column_bytes, part, byte(sizes), capacity - count)
if new == 0 then return {0, answers} end

redis.call('HSET', state, lane, lane_entry(number, answers, now), field, argument(count + new))
if count == 0 or not entry then maintain(FIRST_PART, config_key, state, expires, oldest, now) end
return {0, answers}

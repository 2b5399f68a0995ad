-- contains: which of these items has the filter seen? Changes nothing.
--
-- Includes   blocks, calls, clock, layouts
--
-- KEYS[1]    the filter's parameters
-- KEYS[2]    its state (add.lua)
-- KEYS[3..]  all parts of live slices, the newest first of those of one size
--
-- ARGV[1]    what the calls of the slice share (shared/calls.lua)
-- ARGV[2]    the items (groups_of in shared/blocks.lua)
--
-- Reply      {0, answers}     a character per item: 1 seen, 0 not
--            {1, now}         the server's clock (ms) is not within the current slice
--            {4, ''}          there is no such filter any more
--            {5, layout, parameters}  the stored layout has another version
-- Errors     WRONGTYPE

local config_key, state, FIRST_PART = KEYS[1], KEYS[2], 3
local begins, ends, _, _, _, version, _, _, sizes = read_constants(ARGV[1])
local items = ARGV[2]

local now = server_time()
if now < begins or now >= ends then return {1, now} end

local layout = redis.call('HGET', state, 'layout')
if version_of(layout or '') ~= version then return other_layout(layout, config_key) end

local groups, item_bytes = groups_of(sizes, FIRST_PART)
local answers = {}
for at = 1, #items, item_bytes do
  local seen = first_with(groups, items, at)
  answers[#answers + 1] = seen and '1' or '0'
end
return {0, table.concat(answers)}

-- last_seen: which is the newest slice that holds each of these items? Changes nothing.
--
-- KEYS[1]    the filter's parameters
-- KEYS[2]    the layout (add.lua)
-- KEYS[3..]  all parts of live slices, newest first
--
-- ARGV[1]    the client's parameters
-- ARGV[2]    when the client believes that the current slice begins (ms)
-- ARGV[3]    when it ends (ms)
-- ARGV[4]    1: a filter without parameters is empty; 0: its parameters may be elsewhere (open.lua)
-- ARGV[5]    the client's layout
-- ARGV[6]    the sizes of the parts from KEYS[3] on (groups_of in shared/blocks.lua)
-- ARGV[7]    the number of parts of each slice, newest first, divided by spaces
-- ARGV[8]    the items (find_block in shared/blocks.lua)
--
-- Reply      {0, {slice, ...}}  a number per item: 1 the current slice, 2 the one before it, and so on; 0 none
--            {1, now}         the server's clock (ms) is not within ARGV[2..3]
--            {2, parameters}  the filter is stored with other parameters
--            {4, ''}          no parameters are stored, and the client has not agreed on them
--            {5, layout}      the stored layout is another one
-- Errors     WRONGTYPE

local config_key, layout_key, FIRST_PART = KEYS[1], KEYS[2], 3
local config, begins, ends = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local agreed, layout, sizes, parts, items = ARGV[4] == '1', ARGV[5], ARGV[6], ARGV[7], ARGV[8]

local now = server_time()
if now < begins or now >= ends then return {1, now} end

local reply = disagreement(config_key, config, agreed, layout_key, layout)
if reply then return reply end

local slice_of, last, slice = {}, FIRST_PART - 1, 0
for count in string.gmatch(parts, '%d+') do
  slice = slice + 1
  for part = last + 1, last + count do slice_of[part] = slice end
  last = last + count
end

local groups, item_bytes = groups_of(sizes, FIRST_PART)
local answers = {}
for at = 1, #items, item_bytes do
  local part = first_with(groups, find_block(items, at, item_bytes, groups))
  answers[#answers + 1] = part and slice_of[part] or 0
end
return {0, answers}

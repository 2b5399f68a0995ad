-- last_seen: which is the newest slice that holds each of these items? Changes nothing.
--
-- Includes   blocks, clock, parameters
--
-- KEYS[1]    the filter's parameters
-- KEYS[2]    the layout (shared/layouts.lua)
-- KEYS[3..]  all parts of live slices, the newest first of those of one size
--
-- ARGV[1]    the client's parameters
-- ARGV[2]    when the client believes that the current slice begins (ms)
-- ARGV[3]    when it ends (ms)
-- ARGV[4]    1: a filter without parameters is empty; 0: its parameters may be elsewhere (open.lua)
-- ARGV[5]    the version of the client's layout; '': it knows of none
-- ARGV[6]    the sizes of the parts from KEYS[3] on (groups_of in shared/blocks.lua)
-- ARGV[7]    for each part the number of its slice, two bytes, the higher first: 1 the current slice, 2 the one before it
-- ARGV[8]    the items (groups_of in shared/blocks.lua)
--
-- Reply      {0, {slice, ...}}  a number per item, that of the slice; 0 none
--            {1, now}         the server's clock (ms) is not within ARGV[2..3]
--            {2, parameters}  the filter is stored with other parameters
--            {4, ''}          no parameters are stored, and the client has not agreed on them
--            {5, layout}      the stored layout has another version
-- Errors     WRONGTYPE

local config_key, layout_key, FIRST_PART = KEYS[1], KEYS[2], 3
local config, begins, ends = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local agreed, version, sizes, slices, items = ARGV[4] == '1', ARGV[5], ARGV[6], ARGV[7], ARGV[8]

local now = server_time()
if now < begins or now >= ends then return {1, now} end

local reply = disagreement(config_key, config, agreed, layout_key, version)
if reply then return reply end

-- The slice of a part of KEYS.
local function slice_of(key)
  local high, low = string.byte(slices, 2 * (key - FIRST_PART) + 1, 2 * (key - FIRST_PART) + 2)
  return 256 * high + low
end

local groups, item_bytes = groups_of(sizes, FIRST_PART)
local answers = {}
for at = 1, #items, item_bytes do
  local newest = 0
  for i = 1, #groups do
    local key = first_with({groups[i]}, items, at)
    local slice = key and slice_of(key)
    if slice and (newest == 0 or slice < newest) then newest = slice end
  end
  answers[#answers + 1] = newest
end
return {0, answers}

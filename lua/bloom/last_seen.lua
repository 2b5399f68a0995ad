-- last_seen: which is the newest slice that holds each of these items? Changes nothing.
--
-- Includes   blocks, calls, clock, layouts
--
-- KEYS[1]    the filter's parameters
-- KEYS[2]    its state (add.lua)
-- KEYS[3..]  all parts of live slices, the newest first of those of one size
--
-- ARGV[1]    what the calls of the slice share (shared/calls.lua)
-- ARGV[2]    for each part the number of its slice, two bytes, the higher first: 1 the current slice, 2 the one before it
-- ARGV[3]    the items (groups_of in shared/blocks.lua)
--
-- Reply      {0, {slice, ...}}  a number per item, that of the slice; 0 none
--            {1, now}         the server's clock (ms) is not within the current slice
--            {4, ''}          there is no such filter any more
--            {5, layout, parameters}  the stored layout has another version
-- Errors     WRONGTYPE

local config_key, state, FIRST_PART = KEYS[1], KEYS[2], 3
local begins, ends, _, _, _, version, _, _, sizes = read_constants(ARGV[1])
local slices, items = ARGV[2], ARGV[3]

local now = server_time()
if now < begins or now >= ends then return {1, now} end

local layout = redis.call('HGET', state, 'layout')
if version_of(layout or '') ~= version then return other_layout(layout, config_key) end

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

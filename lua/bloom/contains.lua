-- contains: which of these items has the filter seen? And when, if it is asked? Changes nothing.
--
-- Includes   blocks, header
--
-- KEYS[1]    the filter's parameters
-- KEYS[2]    its state (add.lua)
-- KEYS[3..]  all parts of live slices, the newest first of those of one size
--
-- ARGV[1]    the header (shared/header.lua)
-- ARGV[2]    the items (shared/blocks.lua); or, to ask when, for each part the number of its slice, two bytes, the higher
--            first: 1 the current slice, 2 the one before it
-- ARGV[3]    the items in that case
--
-- Reply      {0, answers}     a character per item: 1 seen, 0 not
--            {0, {slice, ...}}  with ARGV[3]: a number per item, that of the newest slice that holds it; 0 none
--            {1, now}, {4, ''}, {5, layout, parameters}  refused (shared/header.lua)
-- Errors     WRONGTYPE

local config_key, state, FIRST_PART = KEYS[1], KEYS[2], 3
local begins, ends, _, _, _, columns, version, _, _, sizes = read_header(ARGV[1])
local slices, items = ARGV[3] and ARGV[2], ARGV[#ARGV]

-- A client that knows of no filter ('') may ask where there is none.
local layout = redis.call('HGET', state, 'layout') or version == '' and ''
local _, refused = refusal(begins, ends, layout, version, config_key)
if refused then return refused end

local answers = {}
for at = 1, #items, columns + 4 * #sizes / 3 do
  local newest, key = 0, first_with(sizes, columns, items, at, FIRST_PART, FIRST_PART)
  while key do
    local slice = 1
    if slices then
      local place = 2 * (key - FIRST_PART) + 1
      local high, low = byte(slices, place, place + 1)
      slice = 256 * high + low
    end
    if newest == 0 or slice < newest then newest = slice end
    key = slices and first_with(sizes, columns, items, at, FIRST_PART, key + 1)
  end
  answers[#answers + 1] = newest
end
return {0, slices and answers or table.concat(answers)}

-- contains: answer which items are seen, or in which slice each was seen. Nothing is changed.
--
-- Includes   blocks, header
--
-- KEYS[1]    the filter's parameters
-- KEYS[2]    its state (add.lua)
-- KEYS[3..]  all parts of live slices, grouped by part size; the newest first in a group
--
-- ARGV[1]    the header (shared/header.lua)
-- ARGV[2]    the items (shared/blocks.lua). If the reply is to have slices: the number of each part's slice, two bytes, the
--            higher one first; 1 is the current slice, 2 the slice before it
-- ARGV[3]    the items, if the reply is to have slices; otherwise missing
--
-- Reply      {0, answers}     a character per item: 1 seen, 0 not seen
--            {0, {slice, ...}}  with ARGV[3]: for each item the number of the newest slice that holds it, or 0 for none
--            {1, now}, {4, ''}, {5, layout, parameters}  refused (shared/header.lua)
-- Errors     WRONGTYPE

local config_key, state, FIRST_PART = KEYS[1], KEYS[2], 3
local begins, ends, version, columns, sizes = read_header(ARGV[1])
local slices, items = ARGV[3] and ARGV[2], ARGV[#ARGV]

-- A missing layout is no reason to refuse a client that knows no layout (version '').
local layout = redis.call('HGET', state, 'layout') or version == '' and ''
local _, refused = refusal(begins, ends, layout, version, config_key)
if refused then return refused end

local answers = {}
for at = 1, #items, columns + 4 * #sizes / 3 do
  local newest, key = 0, first_part_with(sizes, columns, items, at, FIRST_PART, FIRST_PART)
  while key do
    local slice = 1
    if slices then
      local place = 2 * (key - FIRST_PART) + 1
      local high, low = byte(slices, place, place + 1)
      slice = 256 * high + low
    end
    if newest == 0 or slice < newest then newest = slice end
    key = slices and first_part_with(sizes, columns, items, at, FIRST_PART, key + 1)
  end
  answers[#answers + 1] = newest
end
return {0, slices and answers or table.concat(answers)}

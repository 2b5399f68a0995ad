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
local begins, ends, version, column_bytes, sizes = read_header(ARGV[1])
local slices, items = ARGV[3] and ARGV[2], ARGV[#ARGV]

-- A missing layout is no reason to refuse a client that knows no layout (version '').
local layout = redis.call('HGET', state, 'layout') or version == '' and ''
local _, refused = refusal(begins, ends, layout, version, config_key)
if refused then return refused end

local answers, item_bytes = {}, column_bytes + 4 * #sizes / 3
if not slices then
  local is_unseen = unseen(items, item_bytes, sizes, column_bytes, FIRST_PART)
  for at = 1, #items, item_bytes do
    answers[(at - 1) / item_bytes + 1] = is_unseen[at] and '0' or '1'
  end
  return {0, table.concat(answers)}
end

for number = 1, #items / item_bytes do
  answers[number] = 0
end
-- The newest part that holds an item is known for each size alone, so one size is searched at a time.
local first, begins_at = FIRST_PART, column_bytes
for i = 1, #sizes, 3 do
  local holders, _, high, low = {}, byte(sizes, i, i + 2)
  unseen(items, item_bytes, string.sub(sizes, i, i + 2), begins_at, first, holders)
  for at, key in pairs(holders) do
    local number, place = (at - 1) / item_bytes + 1, 2 * (key - FIRST_PART) + 1
    local higher, lower = byte(slices, place, place + 1)
    local slice = 256 * higher + lower
    if answers[number] == 0 or slice < answers[number] then answers[number] = slice end
  end
  first, begins_at = first + 256 * high + low, begins_at + 4
end
return {0, answers}

-- contains: which of these items has the filter seen? Changes nothing.
--
-- Includes   blocks, calls
--
-- KEYS[1]    the filter's parameters
-- KEYS[2]    its state (add.lua)
-- KEYS[3..]  all parts of live slices, the newest first of those of one size
--
-- ARGV[1]    what the calls of the slice share (shared/calls.lua)
-- ARGV[2]    the items (shared/blocks.lua)
--
-- Reply      {0, answers}     a character per item: 1 seen, 0 not
--            {1, now}         the server's clock (ms) is not within the current slice
--            {4, ''}          there is no such filter any more
--            {5, layout, parameters}  the stored layout has another version
-- Errors     WRONGTYPE

local config_key, state, items, FIRST_PART = KEYS[1], KEYS[2], ARGV[2], 3
local begins, ends, _, _, _, columns, version, _, _, sizes = read_constants(ARGV[1])

-- A client that knows of no filter ('') may ask where there is none.
local layout = redis.call('HGET', state, 'layout') or version == '' and ''
local refused = refusal(begins, ends, server_time(), layout, version, config_key)
if refused then return refused end

local answers = {}
for at = 1, #items, columns + 4 * #sizes / 3 do
  answers[#answers + 1] = first_with(sizes, columns, items, at, FIRST_PART, FIRST_PART) and '1' or '0'
end
return {0, table.concat(answers)}

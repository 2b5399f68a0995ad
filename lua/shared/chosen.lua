-- the chosen part, to which new items go.
--
-- Includes   header

-- Returns the fields of a header for changes: when the chosen slice leaves the window (ms), the capacity and the size in bytes of
-- the chosen part, its field in the state, and the label of the oldest live slice.
local function read_chosen(header)
  local field, oldest = string.match(header, '^%S* (%S*) (%S*) ', 37)
  return number_at(header, 15), number_at(header, 22), number_at(header, 29), field, oldest
end

-- Returns the number of items in a part, from the value of its field in the state.
local function items_in(count)
  return tonumber(string.match(count or '', '^%d+$') or 0)
end

-- the layout: the parts of each slice that has others than the usual one (docs/format.md).
--
-- Includes   none
--
-- '1557273600000000.1557277200123456;20190508=1000:28672:14,2000:61440:16;20190509=4000:103936:14' begins with the version: the
-- generation, and the time of the last change (us; missing before the first change). The entries follow, sorted by label. (The
-- version is no count of changes, because a server that has lost the latest changes would give two layouts the same version.)

-- Returns the version of a layout, '' for an empty text, or the whole text if it is not a layout.
local function version_of(layout)
  return string.match(layout, '^%d[^;]*') or layout
end

-- Returns the number of items in a part, from the value of its field in the filter's state.
local function items_in(field)
  return tonumber(string.match(field or '', '^%d+$') or 0)
end

-- the layout: which parts the slices have, where they have others than the usual one (docs/format.md).
--
-- Includes   none
--
-- '1557273600000000.1557277200123456;20190508=1000:28672:14,2000:61440:16;20190509=4000:103936:14': the version, which is
-- the generation and when the layout changed last (us; left out before the first change), and then the entries, sorted by
-- label. (A number of changes would name two layouts alike on a server that has come back without the latest ones.)

-- The version of a layout; '' if there is none. (Of another program's text, the text.)
local function version_of(layout)
  return string.match(layout, '^%d[^;]*') or layout
end

-- The number of items in a part, by its field in the filter's state.
local function items_in(field)
  return tonumber(string.match(field or '', '^%d+$') or 0)
end

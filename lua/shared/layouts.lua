-- the layout: which parts the slices have, where they have others than the usual one (docs/format.md).
--
-- Includes   clock
--
-- '1557273600000000.1557277200123456;20190508=1000:28672:14,2000:61440:16;20190509=4000:103936:14': the version, which is
-- the generation and when the layout changed last (us; left out before the first change), and then the entries, sorted by
-- label. (A number of changes would name two layouts alike on a server that has come back without the latest ones.)

-- The version of a layout; '' if there is none. (Of another program's text, the text.)
local function version_of(layout)
  return string.match(layout, '^%d[^;]*') or layout
end

-- The layout of a generation that begins now, with these entries.
local function begun_layout(entries)
  return new_generation() .. (entries == '' and '' or ';') .. entries
end

-- The version of a layout that changes now; a later one than before, whatever the clock says.
local function next_version(layout)
  local generation, changed = string.match(layout, '^(%d+)%.?(%d*)')
  local last = tonumber(changed) or tonumber(generation)
  return string.format('%s.%016.0f', generation, math.max(tonumber(new_generation()), last + 1))
end

-- A layout as it is from now on: with these parts by label, and without the slices before the oldest one.
local function next_layout(layout, changed, oldest)
  local parts, labels = {}, {}
  for label, known in string.gmatch(layout, ';(%w+)=([^;]*)') do parts[label] = known end
  for label, new in pairs(changed) do parts[label] = new end
  for label in pairs(parts) do
    if label >= oldest then labels[#labels + 1] = label end
  end
  table.sort(labels)
  local entries = {next_version(layout)}
  for i, label in ipairs(labels) do entries[i + 1] = label .. '=' .. parts[label] end
  return table.concat(entries, ';')
end

-- The layout in which a slice has one more part. `growth` has words: the oldest live slice; the usual part, and the new
-- one; the slice, and the live slices after it (there are some if it is not the current one, or after the server's clock
-- was set back). These get entries too, so that all clients know from the layout alone which slice still needs its entry.
local function grown_layout(layout, growth)
  local words, parts = {}, {}
  for word in string.gmatch(growth, '%S+') do words[#words + 1] = word end
  local oldest, usual, part, slice = words[1], words[2], words[3], words[4]
  for i = 4, #words do parts[words[i]] = string.match(layout, ';' .. words[i] .. '=([^;]*)') or usual end
  parts[slice] = parts[slice] .. ',' .. part
  return next_layout(layout, parts, oldest)
end

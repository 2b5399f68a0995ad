-- new generations, and the layout: the parts of each slice that has others than the default one (docs/format.md).
--
-- '1557273600000000.1557277200123456;20190508=1000:28672:14,2000:61440:16;20190509=4000:103936:14' begins with the version: the
-- generation, and the time of the last change (us; missing before the first change). The entries follow, sorted by label. (The
-- version is no count of changes, because a server that has lost the latest changes would give two layouts the same version.)
--
-- Includes   none

-- Returns the name of a generation or layout that begins now: the server's time (us), 16 digits.
local function new_generation()
  local time = redis.call('TIME')
  return string.format('%010d%06d', time[1], time[2])
end

-- Returns the layout of a generation that begins now, with these entries.
local function first_layout(entries)
  return new_generation() .. (entries == '' and '' or ';') .. entries
end

-- Returns a layout with these entries, and a later version than before, even if the clock was set back.
local function next_layout(layout, entries)
  local generation, changed = string.match(layout, '^(%d+)%.?(%d*)')
  local last = tonumber(changed) or tonumber(generation)
  return string.format('%s.%016.0f;%s', generation, math.max(tonumber(new_generation()), last + 1), entries)
end

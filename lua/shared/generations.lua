-- names for new generations and layouts (shared/layouts.lua).
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

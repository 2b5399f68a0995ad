-- names for new generations and layouts (shared/layouts.lua).
--
-- Includes   none

-- A name for what begins now: the server's clock (us), 16 digits.
local function new_generation()
  local time = redis.call('TIME')
  return string.format('%010d%06d', time[1], time[2])
end

-- The layout of a generation that begins now, with these entries.
local function begun_layout(entries)
  return new_generation() .. (entries == '' and '' or ';') .. entries
end

-- A layout that changes now: these entries, and a later version than before, whatever the clock says.
local function changed_layout(layout, entries)
  local generation, changed = string.match(layout, '^(%d+)%.?(%d*)')
  local last = tonumber(changed) or tonumber(generation)
  return string.format('%s.%016.0f;%s', generation, math.max(tonumber(new_generation()), last + 1), entries)
end

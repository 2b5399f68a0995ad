-- the header: the argument that all calls for a slice share, and the checks that it allows.
--
-- Includes   clock, layouts

-- Returns a whole number of 7 bytes, the highest first.
local function number_at(text, place)
  local a, b, c, d, e, f, g = string.byte(text, place, place + 6)
  return (((((a * 256 + b) * 256 + c) * 256 + d) * 256 + e) * 256 + f) * 256 + g
end

-- Returns the fields of a header, which the client packs once for all calls with one slice and one layout. First the numbers of
-- 7 bytes; times are in ms:
--   when the current slice begins
--   when the current slice ends
--   when the chosen slice leaves the window
--   the capacity of the chosen part (items)
--   the size of the chosen part (bytes)
-- then a number of one byte:
--   the number of columns of a packed item
-- then the texts; a space follows each but the last one:
--   the version of the client's layout; '' if it knows of none
--   the field of the chosen part in the state
--   the label of the oldest live slice
--   the sizes of the parts (shared/blocks.lua)
-- (`struct` would be 1 us faster, but fakeredis does not have it.)
local function read_header(header)
  local version, field, oldest, sizes = string.match(header, '^(%S*) (%S*) (%S*) (.*)$', 37)
  return number_at(header, 1), number_at(header, 8), number_at(header, 15), number_at(header, 22),
    number_at(header, 29), string.byte(header, 36), version, field, oldest, sizes
end

-- Returns the server's time (ms). If the call must be refused, also returns its reply:
--   {1, now}   the time is not within the slice that the client believes current
--   {4, ''}    the filter does not exist (open.lua begins one)
--   {5, layout, parameters}  the stored layout has another version than the client's
local function refusal(begins, ends, layout, version, config_key)
  local now, refused = time_within(begins, ends)
  if refused then return now, refused end
  if not layout then return now, {4, ''} end
  -- A layout without entries equals its version. Comparing it first saves 1 us.
  if layout ~= version and version_of(layout) ~= version then return now, {5, layout, redis.call('GET', config_key) or ''} end
  return now
end

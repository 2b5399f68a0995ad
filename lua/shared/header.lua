-- the header: the argument that all calls for a slice share, and the checks that it allows.
--
-- The client packs it once for all calls with one slice and one layout. Numbers of 7 bytes come first, the highest byte first;
-- times are in ms:
--   when the current slice begins
--   when the current slice ends
--   when the chosen slice leaves the window
--   the capacity of the chosen part (items)
--   the size of the chosen part (bytes)
-- then a number of one byte:
--   the number of bytes of a packed item's columns
-- then texts; a space follows each but the last one:
--   the version of the client's layout (shared/generations.lua); '' if it knows of none
--   the field of the chosen part in the state
--   the label of the oldest live slice
--   the sizes of the parts (shared/blocks.lua)
--
-- Includes   clock

-- Returns a number of 7 bytes.
local function number_at(text, place)
  local a, b, c, d, e, f, g = string.byte(text, place, place + 6)
  return (((((a * 256 + b) * 256 + c) * 256 + d) * 256 + e) * 256 + f) * 256 + g
end

-- Returns the fields for checks and look-ups: when the current slice begins and ends, the version of the client's layout, the
-- number of bytes of an item's columns, and the sizes of the parts. (shared/chosen.lua reads the others, which calls without a change don't need.)
local function read_header(header)
  local version, sizes = string.match(header, '^(%S*) %S* %S* (.*)$', 37)
  return number_at(header, 1), number_at(header, 8), version, string.byte(header, 36), sizes
end

-- Returns the server's time (ms). If the call must be refused, also returns its reply:
--   {1, now}   the time is not within the slice that the client believes current
--   {4, ''}    the filter does not exist (open.lua begins one)
--   {5, layout, parameters}  the stored layout has another version than the client's
local function refusal(begins, ends, layout, version, config_key)
  local now = server_time()
  if now < begins or now >= ends then return now, {1, now} end
  if not layout then return now, {4, ''} end
  -- A layout without entries is only a version. A text that is no layout counts as a version, which no client has.
  if layout == version or string.match(layout, '^%d[^;]*') == version then return now end
  return now, {5, layout, redis.call('GET', config_key) or ''}
end

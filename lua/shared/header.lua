-- what the calls of a slice share, in one argument, and what a call is compared with.
--
-- Includes   clock, layouts

-- A whole number of 7 bytes, the highest first.
local function number_at(text, place)
  local a, b, c, d, e, f, g = string.byte(text, place, place + 6)
  return (((((a * 256 + b) * 256 + c) * 256 + d) * 256 + e) * 256 + f) * 256 + g
end

-- Reads what the client packs once for all calls of a slice, and of one layout. Numbers have 7 bytes; times are in ms:
--   when the current slice begins, and ends; when the chosen slice leaves the window
--   the capacity of the chosen part (items), and its size (bytes)
--   the number of columns of a packed item (one byte)
-- then texts, with a space behind each but the last one:
--   the version of the client's layout; '': it knows of none
--   the field of the chosen part; the label of the oldest live slice
--   the sizes of the parts (shared/blocks.lua)
-- (Not with `struct`, which tests without a server lack: fakeredis. It would be 1 us faster.)
local function read_header(header)
  local version, field, oldest, sizes = string.match(header, '^(%S*) (%S*) (%S*) (.*)$', 37)
  return number_at(header, 1), number_at(header, 8), number_at(header, 15), number_at(header, 22),
    number_at(header, 29), string.byte(header, 36), version, field, oldest, sizes
end

-- The server's clock (ms), and the reply to a call that is refused; nil: it is not.
--   {1, now}   the clock is not within the current slice
--   {4, ''}    there is no such filter, or not any more (open.lua begins one)
--   {5, layout, parameters}  the stored layout has another version than the client's
local function refusal(begins, ends, layout, version, config_key)
  local now, refused = time_within(begins, ends)
  if refused then return now, refused end
  if not layout then return now, {4, ''} end
  -- (A layout without entries is its version: then 1 us is saved.)
  if layout ~= version and version_of(layout) ~= version then return now, {5, layout, redis.call('GET', config_key) or ''} end
  return now
end

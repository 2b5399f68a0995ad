-- what the calls of a slice share, in one argument, and what a call is compared with.
--
-- Includes   clock, layouts

-- Reads what the client packs once for all calls of a slice, and of one layout. Numbers have the highest byte first, times
-- are doubles (ms); a text stands behind its length, of so many bytes:
--   when the current slice begins, and ends; when the chosen slice leaves the window
--   the capacity of the chosen part (items, a double), and its size (4 bytes)
--   the number of columns of a packed item (1)
--   (1) the version of the client's layout; '': it knows of none
--   (1) the field of the chosen part; the label of the oldest live slice (1)
--   (2) the sizes of the parts (shared/blocks.lua)
local function read_constants(constants)
  return struct.unpack('>ddddI4BBc0Bc0Bc0I2c0', constants)
end

-- The reply to a call that is refused; nil: it is not.
--   {1, now}   the server's clock (ms) is not within the current slice
--   {4, ''}    there is no such filter, or not any more (open.lua begins one)
--   {5, layout, parameters}  the stored layout has another version than the client's
local function refusal(begins, ends, now, layout, version, config_key)
  if now < begins or now >= ends then return {1, now} end
  if not layout then return {4, ''} end
  if version_of(layout) ~= version then return {5, layout, redis.call('GET', config_key) or ''} end
end

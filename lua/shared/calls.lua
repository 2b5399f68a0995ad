-- what the calls of a slice share, in one argument, and what a call is compared with.
--
-- Includes   layouts

-- Reads what the client packs once for all calls of a slice, and of one layout. Numbers have the highest byte first, times
-- are doubles (ms); a text stands behind its length, of so many bytes:
--   when the current slice begins, and ends; when the chosen slice leaves the window
--   the capacity of the chosen part (items, a double), and its size (4 bytes)
--   (1) the version of the client's layout; '': it knows of none
--   (1) the field of the chosen part; the label of the oldest live slice (1)
--   (2) the sizes of the parts (groups_of in shared/blocks.lua)
local function read_constants(constants)
  return struct.unpack('>ddddI4Bc0Bc0Bc0I2c0', constants)
end

-- The reply to a client that knows another layout than the stored one: {4, ''} if there is none.
local function other_layout(layout, config_key)
  return layout and {5, layout, redis.call('GET', config_key) or ''} or {4, ''}
end

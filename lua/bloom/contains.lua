-- contains: which of these items has the filter seen? Changes nothing.
--
-- Includes   blocks, clock, layouts, parameters
--
-- KEYS[1]    the filter's parameters
-- KEYS[2]    the layout (shared/layouts.lua)
-- KEYS[3..]  all parts of live slices, the newest first of those of one size
--
-- ARGV[1]    the client's parameters
-- ARGV[2]    when the client believes that the current slice begins (ms)
-- ARGV[3]    when it ends (ms)
-- ARGV[4]    1: a filter without parameters is empty; 0: its parameters may be elsewhere (open.lua)
-- ARGV[5]    the version of the client's layout; '': it knows of none
-- ARGV[6]    the sizes of the parts from KEYS[3] on (groups_of in shared/blocks.lua)
-- ARGV[7]    the items (groups_of in shared/blocks.lua)
--
-- Reply      {0, answers}     a character per item: 1 seen, 0 not
--            {1, now}         the server's clock (ms) is not within ARGV[2..3]
--            {2, parameters}  the filter is stored with other parameters
--            {4, ''}          no parameters are stored, and the client has not agreed on them
--            {5, layout}      the stored layout has another version
-- Errors     WRONGTYPE

local config_key, layout_key, FIRST_PART = KEYS[1], KEYS[2], 3
local config, begins, ends = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local agreed, version, sizes, items = ARGV[4] == '1', ARGV[5], ARGV[6], ARGV[7]

local now = server_time()
if now < begins or now >= ends then return {1, now} end

-- MGET shows a key of another type as a missing one; `disagreement` raises WRONGTYPE.
local stored = redis.call('MGET', config_key, layout_key)
local layout = stored[2] or ''
if stored[1] ~= config or not stored[2] or layout ~= version and version_of(layout) ~= version then
  local reply = disagreement(config_key, config, agreed, layout_key, version)
  if reply then return reply end
end

local groups, item_bytes = groups_of(sizes, FIRST_PART)
local answers = {}
for at = 1, #items, item_bytes do
  local seen = first_with(groups, items, at)
  answers[#answers + 1] = seen and '1' or '0'
end
return {0, table.concat(answers)}

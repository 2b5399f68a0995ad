-- clear: delete the filter's parts, state, claims and parameters.
--
-- Includes   chosen, lane_entries, lanes
--
-- KEYS[1]    the filter's parameters
-- KEYS[2]    its state (add.lua)
-- KEYS[3]    the claims
-- KEYS[4]    the sessions that hold claims
-- KEYS[5]    the index of left items
-- KEYS[6]    what sessions tell of themselves (claims/tell.lua)
-- KEYS[7..]  all parts of live slices, and all parts that the state counts
--
-- ARGV[1]    the token (shared/lanes.lua)
-- ARGV[2]    the header (shared/header.lua)
-- ARGV[3]    the client's parameters
-- ARGV[4]    the longest time for which the lane is kept (ms)
--
-- Reply      {0, keys}        the number of keys that were deleted
--            {2, parameters}  the filter is stored with other parameters, and may have other slices; nothing changed
--            {3, number}      the lane has had this call or a later one: the filter was cleared before; nothing changed
--            {1, now}, {5, layout, parameters}  refused (shared/header.lua); nothing changed. {5, ...} also if
--                             the state counts a part that KEYS lack, and the client has to read the state again
-- Errors     WRONGTYPE, READONLY, each before anything is changed. If memory is full, the server refuses a script's writes until
--            one of them has freed some, as UNLINK may; so that comes first

local config_key, state, FIRST_PART = KEYS[1], KEYS[2], 7
local number, lane = read_token(ARGV[1])
local begins, ends, version = read_header(ARGV[2])
local expires = read_chosen(ARGV[2])
local config, lane_ttl = ARGV[3], tonumber(ARGV[4])

-- Without this check, a second copy would delete what other clients have added meanwhile.
local kept = redis.call('HMGET', state, 'layout', lane)
local earlier, last = answers_in(kept[2], number)
if earlier or last then return {3, last or tonumber(number, 16)} end

local stored, layout = redis.call('GET', config_key), kept[1] or ''
if stored and stored ~= config then return {2, stored} end
local now, refused = refusal(begins, ends, layout, version, config_key)
if refused then return refused end
-- Since the client read the state, the clock may have been set on, a part have begun, and the clock have been set back.
local tag, known = string.sub(state, 1, -#'state' - 1), {}
for part = FIRST_PART, #KEYS do known[KEYS[part]] = true end
for _, field in ipairs(redis.call('HKEYS', state)) do
  local is_part = string.match(field, '^%d%w*$') or string.match(field, '^%d%w*:%d+$')
  if is_part and not known[tag .. field] then return {5, layout, stored or ''} end
end
-- GETBIT and HLEN raise WRONGTYPE, so that another program's key is not deleted.
for part = FIRST_PART, #KEYS do redis.call('GETBIT', KEYS[part], 0) end
for _, hash in ipairs({3, 4, 6}) do redis.call('HLEN', KEYS[hash]) end
redis.call('ZCARD', KEYS[5])

local keys = redis.call('UNLINK', state) * (layout == '' and 0 or 1)
keys = keys + redis.call('UNLINK', config_key, KEYS[3], KEYS[4], KEYS[5], KEYS[6])
for part = FIRST_PART, #KEYS do keys = keys + redis.call('UNLINK', KEYS[part]) end
-- Only the lane is kept, and that this was no loss (open.lua).
redis.call('HSET', state, lane, lane_entry(number, '', now), 'cleared', '1')
redis.call('PEXPIREAT', state, math.min(now + lane_ttl, expires))
return {0, keys}

-- forget: forget the ids of a mapping, and its counters. Later ids get another generation, with other buckets. The layout and the
-- entries are renamed, and kept until the client has deleted this generation's buckets and the counters' pieces.
--
-- Includes   buckets, clock, parameters
--
-- KEYS[1]    the mapping's parameters
-- KEYS[2]    the mapping's layout
-- KEYS[3]    the number of ids that the mapping has given
-- KEYS[4]    the entries of the mapping's counters, by name
-- KEYS[5]    the layout that is being cleared: its buckets are to be deleted
-- KEYS[6]    the entries that are being cleared: their pieces are to be deleted
--
-- ARGV[1]    the mapping's parameters, as the client knows them
-- ARGV[2]    the mapping's generation, as the client has read it
-- ARGV[3]    the generation that is being cleared, whose buckets and pieces the client has deleted; '-' for none
--
-- Reply      {0, now}         the server's clock (ms). Done, or the mapping was forgotten before: its generation is another one
--            {2, parameters}  the mapping is stored with other parameters; nothing changed
--            {9, now}         something is being cleared: the client must delete what the layout and the entries name
-- Errors     WRONGTYPE, READONLY, each before anything is changed

local mapping_key, layout_key, members_key, counters_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local forgotten_layout, forgotten_counters, LONGEST = KEYS[5], KEYS[6], 16 + 2 ^ 23

local refusal = disagreement(mapping_key, ARGV[1], true)
if refusal then return refusal end
redis.call('GET', members_key) -- raises WRONGTYPE, so that another program's key is not deleted
local generation, entries, forgotten = generation_of(layout_key), redis.call('HLEN', counters_key), generation_of(forgotten_layout)
local is_left = redis.call('HLEN', forgotten_counters) > 0 or forgotten ~= ''
if is_left and forgotten == ARGV[3] then
  redis.call('UNLINK', forgotten_layout, forgotten_counters)
  is_left = false
end
if is_left or generation ~= ARGV[2] then return {is_left and 9 or 0, server_time()} end

if entries > 0 then redis.call('RENAME', counters_key, forgotten_counters) end
-- (A layout that is not tbloom's names no buckets.)
local names_buckets = string.find(generation, '^%d+$') and redis.call('STRLEN', layout_key) <= LONGEST
if names_buckets then redis.call('RENAME', layout_key, forgotten_layout) end
redis.call('UNLINK', mapping_key, layout_key, members_key)
return {(entries > 0 or names_buckets) and 9 or 0, server_time()}

-- sweep: delete the stale pieces of a counter's slices, which are from before a clear().
--
-- Includes   counters
--
-- KEYS[1]    the entries of the mapping's counters, by name
-- KEYS[2..]  the pieces
--
-- ARGV[1]    the counter's name
--
-- Reply      {}
-- Errors     WRONGTYPE, READONLY

local generation = entry_of(KEYS[1], ARGV[1])
for i = 2, #KEYS do
  local head = head_of(KEYS[i], generation)
  if not (head and head.is_live) then redis.call('UNLINK', KEYS[i]) end
end
return {}

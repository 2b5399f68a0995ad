-- count: count the entries of some buckets, and their memory.
--
-- Includes   buckets, clock
--
-- KEYS[1]    a bucket
-- KEYS[2..]  further ones
--
-- ARGV[1]    the buckets' generation
--
-- Reply      {items, dead, bytes}  the numbers of live items and expired entries, and the memory of both
-- Errors     WRONGTYPE

local now = since(ARGV[1], server_time())
local items, entries, bytes = 0, 0, 0
for i = 1, #KEYS do
  items = items + redis.call('ZCOUNT', KEYS[i], '(' .. now, '+inf')
  entries = entries + redis.call('ZCARD', KEYS[i])
  bytes = bytes + (redis.call('MEMORY', 'USAGE', KEYS[i]) or 0)
end
return {items, entries - items, bytes}

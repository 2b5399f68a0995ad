-- count: count the entries of some buckets.
--
-- Includes   buckets, clock
--
-- KEYS[1]    a bucket
-- KEYS[2..]  further ones
--
-- ARGV[1]    the buckets' generation
--
-- Reply      {items, dead}   the numbers of live items and expired entries
-- Errors     WRONGTYPE

local now = since(ARGV[1], server_time())
local items, entries = 0, 0
for i = 1, #KEYS do
  items = items + redis.call('ZCOUNT', KEYS[i], '(' .. now, '+inf')
  entries = entries + redis.call('ZCARD', KEYS[i])
end
return {items, entries - items}

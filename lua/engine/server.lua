-- server: what the server that holds a filter, or a shard of it, says of its memory. Changes nothing.
--
-- KEYS[1]    any of the filter's keys, by which a cluster finds the node
--
-- Reply      {0, text}        the section "memory" of INFO
-- Errors     none

return {0, redis.call('INFO', 'memory')}

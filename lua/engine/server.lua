-- server: the memory section of INFO, from the server that has this key. Changes nothing.
--
-- Includes   none
--
-- KEYS[1]    any of the store's keys, by which a cluster finds the node
--
-- Reply      {0, text}        the section
-- Errors     none

return {0, redis.call('INFO', 'memory')}

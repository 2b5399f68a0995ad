-- exact_open: agree on a sharded exact filter's parameters. The shards keep copies; this is where they are compared.
--
-- KEYS[1]    the filter's parameters, found by its name alone
--
-- ARGV[1]    the parameters that the caller works with
-- ARGV[2]    for how long the caller's items are remembered (ms); it comes again in half that time. 0: store nothing
--
-- Reply      {0, ''}          agreed
--            {2, parameters}  the filter is stored with others; nothing changed
-- Errors     WRONGTYPE, OOM, READONLY, all of them before anything is changed

local root, config, ttl = KEYS[1], ARGV[1], tonumber(ARGV[2])

local stored = redis.call('GET', root)
if stored and stored ~= config then return {2, stored} end
if ttl > 0 and ends_before(root, 1.5 * ttl) then
  redis.call('SET', root, config, 'PX', 2 * ttl)
end
return {0, ''}

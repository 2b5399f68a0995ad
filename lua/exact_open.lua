-- exact_open: agree on a sharded exact filter's parameters. The shards keep copies; this is where they are compared.
--
-- KEYS[1]    the filter's parameters, found by its name alone
--
-- ARGV[1]    the parameters that the caller works with
-- ARGV[2]    for how long they must be kept at least (ms); 0: store nothing
--
-- Reply      {0, ''}          agreed
--            {2, parameters}  the filter is stored with others; nothing changed
-- Errors     WRONGTYPE, OOM, READONLY, all of them before anything is changed

local root, config, life = KEYS[1], ARGV[1], tonumber(ARGV[2])

local stored = redis.call('GET', root)
if stored and stored ~= config then return {2, stored} end
if life > 0 and redis.call('PTTL', root) < life then
  redis.call('SET', root, config, 'PX', 2 * life)
end
return {0, ''}

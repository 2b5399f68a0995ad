-- open: compares the parameters of a filter with several shards. The shards have copies of them.
--
-- Includes   parameters
--
-- KEYS[1]    the filter's parameters; this key follows from the name alone
--
-- ARGV[1]    the client's parameters
-- ARGV[2]    how long the client's items are remembered (ms); it calls again after half that time. 0: store nothing
--
-- Reply      {0, ''}          the parameters are the same, or there were none
--            {2, parameters}  the filter is stored with other parameters; nothing changed
-- Errors     WRONGTYPE, OOM, READONLY, all of them before anything is changed

local root, config, ttl = KEYS[1], ARGV[1], tonumber(ARGV[2])

local refusal = disagreement(root, config, true)
if refusal then return refusal end
if ttl > 0 and ends_before(root, 1.5 * ttl) then
  redis.call('SET', root, config, 'PX', 2 * ttl)
end
return {0, ''}

-- the parameters that are stored, and those that the client works with.
--
-- Includes   none

-- The reply to a client whose parameters are not the stored ones; nil if they are. And the stored parameters.
local function disagreement(config_key, config, agreed)
  local stored = redis.call('GET', config_key)
  if stored and stored ~= config then return {2, stored} end
  if not stored and not agreed then return {4, ''} end
  return nil, stored
end

-- True if a key is missing, or is dropped within `life` (ms).
local function ends_before(key, life)
  local left = redis.call('PTTL', key)
  return left ~= -1 and left < life
end

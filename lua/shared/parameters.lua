-- the stored parameters, which are compared with the client's.
--
-- Includes   none

-- Returns the reply to a client whose parameters differ from the stored ones. Otherwise returns nil and the stored parameters.
-- `agreed`: the client has compared its parameters elsewhere, so that none need be stored here.
local function disagreement(config_key, config, agreed)
  local stored = redis.call('GET', config_key)
  if stored and stored ~= config then return {2, stored} end
  if not stored and not agreed then return {4, ''} end
  return nil, stored
end

-- Returns true if a key is missing, or expires within `life` (ms). A key without a TTL never ends: false.
local function ends_before(key, life)
  local left = redis.call('PTTL', key)
  return left ~= -1 and left < life
end

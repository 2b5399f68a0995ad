-- the parameters that are stored, and those that the client works with.

-- What a script replies where the caller's parameters, or its layout, are not the stored ones; nil where they
-- are. And whether parameters are stored.
local function disagreement(config_key, config, agreed, layout_key, layout)
  local stored = redis.call('GET', config_key)
  if stored and stored ~= config then return {2, stored} end
  if not stored and not agreed then return {4, ''} end
  local stored_layout = redis.call('GET', layout_key) or ''
  if stored_layout ~= layout then return {5, stored_layout} end
  return nil, stored
end

-- What a script replies where the caller's parameters are not the stored ones; nil where they are. And those.
local function other_parameters(config_key, config, agreed)
  local stored = redis.call('GET', config_key)
  if stored and stored ~= config then return {2, stored} end
  if not stored and not agreed then return {4, ''} end
  return nil, stored
end

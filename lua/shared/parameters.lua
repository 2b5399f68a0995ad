-- the parameters that are stored, and those that the client works with.

-- The reply to a client whose parameters, or whose layout if that is given, are not the stored ones; nil if they are. And
-- the stored parameters.
local function disagreement(config_key, config, agreed, layout_key, layout)
  local stored = redis.call('GET', config_key)
  if stored and stored ~= config then return {2, stored} end
  if not stored and not agreed then return {4, ''} end
  local stored_layout = layout_key and (redis.call('GET', layout_key) or '')
  if stored_layout and stored_layout ~= layout then return {5, stored_layout} end
  return nil, stored
end

-- the parameters that are stored, and those that the client works with.
--
-- Includes   keys, layouts

-- The reply to a client whose parameters, or whose version of the layout if that is given, are not the stored ones; nil if
-- they are. And the stored parameters.
local function disagreement(config_key, config, agreed, layout_key, version)
  local stored = redis.call('GET', config_key)
  if stored and stored ~= config then return {2, stored} end
  if not stored and not agreed then return {4, ''} end
  local layout = layout_key and (redis.call('GET', layout_key) or '')
  if layout and version_of(layout) ~= version then return {5, layout} end
  return nil, stored
end

-- `disagreement` for a script that changes something. Where there is no layout, and the client knows of none, the filter
-- begins: its parameters and a layout are stored, and the client has to call again. So a late copy of a call from before
-- a clear() changes nothing in the filter.
local function change_refusal(config_key, config, agreed, layout_key, version, expires, now)
  local reply, stored = disagreement(config_key, config, agreed, layout_key, version)
  if reply or stored and version ~= '' then return reply end
  keep(config_key, config, expires, now)
  local layout = version == '' and begun_layout('') or redis.call('GET', layout_key)
  keep(layout_key, layout, expires, now)
  return {5, layout}
end

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

-- The layout of a generation that begins now, with these entries.
local function begun_layout(entries)
  return new_generation() .. (entries == '' and '' or ';') .. entries
end

-- `disagreement` for a script that changes something. Where there is no layout, and the client knows of none, the filter
-- begins: its parameters and a layout are stored, and the client has to call again. So a late copy of a call from before
-- a clear() changes nothing in the filter.
local function refusal(config_key, config, agreed, layout_key, layout, expires, now)
  local reply, stored = disagreement(config_key, config, agreed, layout_key, layout)
  if reply or stored and layout ~= '' then return reply end
  keep(config_key, config, expires, now)
  if layout == '' then layout = begun_layout('') end
  keep(layout_key, layout, expires, now)
  return {5, layout}
end

-- the checks with which calls that have a token and a header begin.
--
-- Includes   header, lanes

-- Returns the reply to a call that was executed before, or must be refused:
--   {0, answers}     the first answers: a resent call gets them, even if something has changed since
--   {3, number}      the lane has had a later call: this is a stray copy of an answered call; nothing changed
--   {1, now}, {4, ''}, {5, layout, parameters}  refused (shared/header.lua); nothing changed
-- Otherwise returns nil, the server's time (ms), and the value of the lane.
local function begin_call(state, config_key, number, lane, begins, ends, version)
  local stored = redis.call('HMGET', state, 'layout', lane)
  local earlier, last = answers_in(stored[2], number)
  if earlier then return {0, earlier} end
  if last then return {3, last} end
  local now, refused = refusal(begins, ends, stored[1], version, config_key)
  return refused, now, stored[2]
end

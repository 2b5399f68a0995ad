-- relayout: give a slice that begins other parts than the usual one, unless the layout was changed meanwhile.
--
-- KEYS[1]    the filter's parameters
-- KEYS[2]    the layout: the parts of those slices that have not just the one that every slice begins with
--
-- ARGV[1]    the parameters that the caller works with
-- ARGV[2]    the layout that the caller knows
-- ARGV[3]    the layout that it should become: with an entry for the current slice, without those gone
-- ARGV[4]    when the current slice begins, as the caller believes (ms)
-- ARGV[5]    when it ends (ms)
-- ARGV[6]    when it leaves the window (ms)
--
-- Reply      {1, now}         the server's clock (ms) is not within ARGV[4..5]; nothing changed
--            {2, parameters}  the filter is stored with others; nothing changed
--            {5, layout}      the layout that is stored then
-- Errors     WRONGTYPE, OOM, READONLY, all of them before anything is changed

local config_key, layout_key = KEYS[1], KEYS[2]
local config, known, wanted = ARGV[1], ARGV[2], ARGV[3]
local begins, ends, expires = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if now < begins or now >= ends then return {1, now} end

local stored_config = redis.call('GET', config_key)
if stored_config and stored_config ~= config then return {2, stored_config} end
local stored = redis.call('GET', layout_key) or ''
if stored ~= known then return {5, stored} end
-- Its life is that of the newest slice, so it is only ever prolonged.
if redis.call('PTTL', layout_key) < expires - now then
  redis.call('SET', layout_key, wanted, 'PXAT', expires)
else
  redis.call('SET', layout_key, wanted, 'KEEPTTL')
end
return {5, wanted}

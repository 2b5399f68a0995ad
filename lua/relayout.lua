-- relayout: give a slice that begins other parts than the usual one, unless the layout was changed meanwhile.
--
-- KEYS[1]    the layout: the parts of those slices that have not just the one that every slice begins with
--
-- ARGV[1]    the layout that the caller knows
-- ARGV[2]    the layout that it should become
-- ARGV[3]    when the slice leaves the window (ms)
--
-- Reply      {5, layout}      the layout that is stored then
-- Errors     WRONGTYPE, OOM, READONLY, all of them before anything is changed

local layout_key, known, wanted, expires = KEYS[1], ARGV[1], ARGV[2], ARGV[3]

local stored = redis.call('GET', layout_key) or ''
if stored ~= known then return {5, stored} end
redis.call('SET', layout_key, wanted, 'PXAT', expires)
return {5, wanted}

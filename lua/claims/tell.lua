-- tell: store what a session tells of itself, and add what it has counted since it told the last time to the totals.
--
-- Includes   clock, ttls
--
-- KEYS[1]    what sessions tell of themselves, a hash. A session -> when it told (ms), its counters, a line feed, and a text:
--            "1764400000000 done 12 failed:status 3\n{...}"; 'total:' with a counter's name -> the sum of all sessions; 'queue:'
--            with a hash -> that queue; 'project' -> the project that was told first
--
-- ARGV[1]    the session, 16 characters; '': only the project is told
-- ARGV[2]    its text
-- ARGV[3]    when the key expires, at the earliest (ms)
-- ARGV[4]    the hash of its queue, 8 characters
-- ARGV[5]    its queue
-- ARGV[6]    its project; '': none
-- ARGV[7..]  the name of each counter, without spaces, and its number since the session began
--
-- Reply      {0, project}     the project that was told first; '': none
-- Errors     WRONGTYPE, OOM, READONLY, before anything is changed
--
-- A second copy of the call adds nothing to the totals.

local key, session, record, expires, hash, queue, project = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local now = server_time()

local first_project = redis.call('HGET', key, 'project') or project
if first_project ~= '' then redis.call('HSET', key, 'project', first_project) end
if session ~= '' then
  local before, counters = {}, {}
  local told = string.match(redis.call('HGET', key, session) or '', '^%d+ ([^\n]*)')
  for name, number in string.gmatch(told or '', '(%S+) (%d+)') do before[name] = number end
  for at = 7, #ARGV, 2 do
    local name, number = ARGV[at], ARGV[at + 1]
    local total = redis.call('HGET', key, 'total:' .. name) or 0
    redis.call('HSET', key, 'total:' .. name, string.format('%.0f', total + math.max(0, number - (before[name] or 0))))
    counters[#counters + 1] = name .. ' ' .. number
  end
  local head = string.format('%.0f ', now) .. table.concat(counters, ' ')
  redis.call('HSET', key, session, head .. '\n' .. record, 'queue:' .. hash, queue)
end
give_or_extend_ttl(key, tonumber(expires), now)
return {0, first_project}

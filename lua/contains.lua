-- contains: which of these items has the filter seen? Changes nothing.
--
-- KEYS[1]    the filter's parameters
-- KEYS[2..]  live slices, newest first
--
-- ARGV[1]    the parameters that the caller works with
-- ARGV[2]    when the newest slice begins, as the caller believes (ms)
-- ARGV[3]    when it ends (ms)
-- ARGV[4]    1: without parameters the filter is empty; 0: they may be elsewhere (open.lua)
-- ARGV[5..]  one item each: the positions of its bits, decimal, separated by spaces
--
-- Reply      {0, answers}     a character per item: 1 seen, 0 not
--            {1, now}         the server's clock (ms) is not within ARGV[2..3]
--            {2, parameters}  the filter is stored with others
--            {4, ''}          no parameters are stored here, and the caller has not compared them
-- Errors     WRONGTYPE

local config_key, config = KEYS[1], ARGV[1]
local begins, ends = tonumber(ARGV[2]), tonumber(ARGV[3])
local agreed = ARGV[4] == '1'
local FIRST_ITEM = 5

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if now < begins or now >= ends then return {1, now} end

local stored = redis.call('GET', config_key)
if stored and stored ~= config then return {2, stored} end
if not stored and not agreed then return {4, ''} end

local function holds(slice, positions)
  for i = 1, #positions do
    if redis.call('GETBIT', slice, positions[i]) == 0 then return false end
  end
  return true
end

local answers = {}
for item = FIRST_ITEM, #ARGV do
  local positions = {}
  for position in string.gmatch(ARGV[item], '%d+') do positions[#positions + 1] = position end
  local seen = false
  for slice = 2, #KEYS do
    if seen then break end
    seen = holds(KEYS[slice], positions)
  end
  answers[#answers + 1] = seen and '1' or '0'
end
return {0, table.concat(answers)}

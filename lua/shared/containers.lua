-- containers: sets of up to 65,536 ids. One character for the form precedes the bytes of the Roaring portable format
-- (RoaringFormatSpec). Numbers have two bytes, the low one first.
--   'a'  an array: at most 4,096 ids, sorted
--   'b'  a bitmap: the number of ids - 1, then 8,192 bytes; id i is bit i % 8 of byte i / 8, counted from the lowest
--   'r'  runs: the number of runs, then the first id and the length - 1 of each
--
-- Includes   none

-- Returns two bytes of a container as a number.
local function u16_at(container, at)
  local low, high = string.byte(container, at, at + 1)
  return high * 256 + low
end

-- Returns a number as two bytes.
local function u16(number)
  number = math.max(0, math.min(number, 65535))
  return string.char(number % 256, math.floor(number / 256))
end

-- Returns the form of a container ('a', 'b' or 'r'), and the number of ids of an array or of runs. Returns nil if the container is
-- not tbloom's.
local function form_of(container)
  local form, size = string.sub(container, 1, 1), #container - 1
  if form == 'a' and size % 2 == 0 and size <= 8192 then return form, size / 2 end
  if form == 'b' and size == 8194 then return form, 0 end
  if form == 'r' and size % 4 == 2 and size < 8192 and u16_at(container, 2) == (size - 2) / 4 then
    return form, (size - 2) / 4
  end
end

-- Returns the number of ids of an array, or of runs, that begin at this id or before it, and the number of bytes of each.
local function begun_by(container, low)
  local first, step = 2, 2
  if string.byte(container) == 114 then first, step = 4, 4 end
  local from, to = 0, (#container + 1 - first) / step
  while from < to do
    local middle = math.floor((from + to) / 2)
    if u16_at(container, first + step * middle) <= low then from = middle + 1 else to = middle end
  end
  return from, step
end

-- Returns true if an id is in a container.
local function holds(container, low)
  if string.byte(container) == 98 then
    return math.floor(string.byte(container, 4 + math.floor(low / 8)) / 2 ^ (low % 8)) % 2 == 1
  end
  local n, step = begun_by(container, low)
  if n == 0 then return false end
  local first = u16_at(container, step * n)
  return first == low or step == 4 and low <= first + u16_at(container, step * n + 2)
end

-- Returns an array after the sorted ids `lows` were added or removed.
local function changed_array(container, lows, is_added)
  local pieces, from = {}, 1
  for _, low in ipairs(lows) do
    local to = 2 * begun_by(container, low) + 1
    pieces[#pieces + 1] = is_added and string.sub(container, from, to) .. u16(low) or string.sub(container, from, to - 2)
    from = to + 1
  end
  pieces[#pieces + 1] = string.sub(container, from)
  return table.concat(pieces)
end

-- Returns a bitmap after the sorted ids `lows` were added or removed, or nil if no id is left.
local function changed_bitmap(container, lows, is_added)
  local n = u16_at(container, 2) + (is_added and #lows or -#lows)
  if n < 0 then return nil end
  local pieces, from = {'b' .. u16(n)}, 4
  for _, low in ipairs(lows) do
    local at = 4 + math.floor(low / 8)
    if at >= from then
      pieces[#pieces + 1] = string.sub(container, from, at - 1)
      pieces[#pieces + 1], from = string.sub(container, at, at), at + 1
    end
    pieces[#pieces] = string.char(string.byte(pieces[#pieces]) + (is_added and 1 or -1) * 2 ^ (low % 8))
  end
  pieces[#pieces + 1] = string.sub(container, from)
  return table.concat(pieces)
end

-- Returns runs after the sorted ids `lows` were added or removed. In the loop, the last piece is the last run that begins at the
-- id or before it; the bytes from `from` on are not copied yet.
local function changed_runs(container, lows, is_added)
  local pieces, from = {}, 4
  for _, low in ipairs(lows) do
    local at = 4 * begun_by(container, low)
    if at >= from then
      pieces[#pieces + 1] = string.sub(container, from, at - 1)
      pieces[#pieces + 1], from = string.sub(container, at, at + 3), at + 4
    end
    local run = pieces[#pieces]
    local first = run and u16_at(run, 1) or low
    local last = run and first + u16_at(run, 3) or -2
    if is_added then
      local continues, to = last == low - 1, low
      if from < #container and u16_at(container, from) == low + 1 then
        to, from = low + 1 + u16_at(container, from + 2), from + 4
      end
      if not continues then first = low end
      pieces[continues and #pieces or #pieces + 1] = u16(first) .. u16(to - first)
    else
      pieces[#pieces] = first < low and u16(first) .. u16(low - 1 - first) or ''
      if low < last then pieces[#pieces + 1] = u16(low + 1) .. u16(last - low - 1) end
    end
  end
  local runs = table.concat(pieces) .. string.sub(container, from)
  return 'r' .. u16(#runs / 4) .. runs
end

-- Returns the runs of an array or of runs as a list: first, last, first, last, ... The list is empty if the ids are not in order.
local function spans_of(container)
  local spans, n, last = {}, 0, -2
  local is_array = string.byte(container) == 97
  for from = is_array and 2 or 4, #container, 200 do
    local bytes = {string.byte(container, from, from + 199)}
    for i = 1, #bytes, is_array and 2 or 4 do
      local first = bytes[i] + 256 * bytes[i + 1]
      local to = is_array and first or first + bytes[i + 2] + 256 * bytes[i + 3]
      if first <= last or to > 65535 then return {} end
      if first == last + 1 then spans[n] = to else spans[n + 1], spans[n + 2], n = first, to, n + 2 end
      last = to
    end
  end
  return spans
end

-- Returns a list of numbers (0 to 255) as bytes.
local function packed_bytes(bytes)
  local pieces = {}
  for from = 1, #bytes, 200 do
    pieces[#pieces + 1] = string.char(unpack(bytes, from, math.min(from + 199, #bytes)))
  end
  return table.concat(pieces)
end

-- Returns a bitmap with the ids of these spans.
local function bitmap_of(spans)
  local bytes, n, POWERS = {}, 0, {[0] = 1, 2, 4, 8, 16, 32, 64, 128, 256}
  for i = 1, 8192 do bytes[i] = 0 end
  for i = 1, #spans, 2 do
    local first, last = spans[i], spans[i + 1]
    n = n + last - first + 1
    while first <= last do
      local low = first % 8
      local at, high = (first - low) / 8 + 1, low + last - first
      if high > 7 then high = 7 end
      bytes[at], first = bytes[at] + POWERS[high + 1] - POWERS[low], first - low + 8
    end
  end
  return 'b' .. u16(n - 1) .. packed_bytes(bytes)
end

-- Returns the smallest container with the ids of these spans. There must be at least one span.
local function container_of(spans)
  local bytes, n, count, runs = {}, 0, 0, #spans / 2
  for i = 1, #spans, 2 do count = count + spans[i + 1] - spans[i] + 1 end
  local form = runs < 2048 and 'r' or 'b'
  if count <= 4096 and count <= 1 + 2 * runs then form = 'a' end
  if form == 'b' then return bitmap_of(spans) end
  for i = 1, #spans, 2 do
    local first, last = spans[i], spans[i + 1]
    if form == 'a' then
      for id = first, last do bytes[n + 1], bytes[n + 2], n = id % 256, (id - id % 256) / 256, n + 2 end
    else
      local more = last - first
      bytes[n + 1], bytes[n + 2] = first % 256, (first - first % 256) / 256
      bytes[n + 3], bytes[n + 4], n = more % 256, (more - more % 256) / 256, n + 4
    end
  end
  return (form == 'a' and 'a' or 'r' .. u16(runs)) .. packed_bytes(bytes)
end

-- Returns true if a container should be checked for a smaller form: its number of ids or runs has passed a power of two, or is
-- too large for an array.
local function is_due(before, after)
  local _, power_before = math.frexp(math.max(before, 63))
  local _, power_after = math.frexp(after)
  return power_after > power_before or after > 4096
end

-- Returns a container after the sorted ids `lows` were added or removed, or nil if no id is left. The container must have none of
-- the ids to add, and all of the ids to remove.
local function changed(container, lows, is_added)
  local form, before = form_of(container)
  local after
  if form == 'b' then return changed_bitmap(container, lows, is_added) end
  if form == 'a' then
    container = changed_array(container, lows, is_added)
    after = (#container - 1) / 2
  else
    container = changed_runs(container, lows, is_added)
    after = (#container - 3) / 4
  end
  if after == 0 then return nil end
  local spans = is_due(before, after) and spans_of(container) or {}
  return spans[1] and container_of(spans) or container
end

-- Returns the union of two lists of spans.
local function united_spans(one, other)
  local spans, n, i, j = {}, 0, 1, 1
  while one[i] or other[j] do
    local first, last
    if not other[j] or one[i] and one[i] <= other[j] then
      first, last, i = one[i], one[i + 1], i + 2
    else
      first, last, j = other[j], other[j + 1], j + 2
    end
    if n > 0 and first <= spans[n] + 1 then
      spans[n] = math.max(spans[n], last)
    else
      spans[n + 1], spans[n + 2], n = first, last, n + 2
    end
  end
  return spans
end

-- Returns the number of ids in a container.
local function count_of(container)
  local form, size = form_of(container)
  if form == 'a' then return size elseif form == 'b' then return u16_at(container, 2) + 1 end
  for run = 1, size do size = size + u16_at(container, 4 * run + 2) end
  return size
end

-- Returns the union of two containers. Both keys are overwritten.
local function united(one, other, key, other_key)
  if string.byte(one) ~= 98 and string.byte(other) ~= 98 then
    local spans = united_spans(spans_of(one), spans_of(other))
    return spans[1] and container_of(spans) or other
  end
  for i, container in ipairs({one, other}) do
    if string.byte(container) ~= 98 then container = bitmap_of(spans_of(container)) end
    redis.call('SET', i == 1 and key or other_key, string.sub(container, 4))
  end
  redis.call('BITOP', 'OR', key, key, other_key)
  return 'b' .. u16(redis.call('BITCOUNT', key) - 1) .. redis.call('GET', key)
end

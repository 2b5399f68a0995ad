-- the slices of a distinct counter. A slice consists of pieces, one for each 2^28 ids. A piece is a hash: the number of a chunk
-- -> the container of the chunk's 65,536 ids (shared/containers.lua). Its field 'head' has the number of ids, the version and the
-- counter's generation: '3 1557273600000000 1557273600000000'. Each change gives the piece another version. A piece of another
-- generation than the counter's is from before a clear(), and counts as empty. A counter's entry has its generation, its
-- mapping's generation ('-' without a mapping) and its parameters: '1557273600000000 1557270000000000 {}'.
--
-- Includes   containers, generations

-- Returns the fields of a counter's entry, and the entry. The fields are nil if there is no entry, or if it is not tbloom's.
local function entry_of(counters_key, counter)
  local entry = redis.call('HGET', counters_key, counter)
  local generation, of, parameters = string.match(entry or '', '^(%d+) ([%d-]+) (.*)$')
  return generation, of, parameters, entry
end

-- Returns the head of a piece, or nil if it is not tbloom's.
local function head_of(key, generation)
  local head = redis.call('HGET', key, 'head')
  if not head then return {key = key, n = 0, is_live = false} end
  local n, version, of = string.match(head, '^(%d+) (%d+) (%d+)$')
  if not n or #n > 15 or #version > 16 then return nil end
  local is_live = of == generation
  return {key = key, n = is_live and tonumber(n) or 0, version = tonumber(version), is_live = is_live}
end

-- Returns the container of a chunk (nil if there is none), and whether it is damaged.
local function container_at(head, at)
  local container = head.is_live and redis.call('HGET', head.key, at) or nil
  return container, container and not form_of(container)
end

-- Stores the changed containers of a piece, and the number of its ids. The value false deletes a container.
local function store(head, containers, n, generation, expires)
  local version = tonumber(new_generation())
  if head.is_live and head.version >= version then
    -- The clock was set back. The fraction of a second is added so that the version differs from those of later changes that a
    -- restart has lost.
    version = head.version + 1 + version % 1000000
  end
  if not head.is_live then redis.call('UNLINK', head.key) end
  for at, container in pairs(containers) do
    if container then redis.call('HSET', head.key, at, container) else redis.call('HDEL', head.key, at) end
  end
  redis.call('HSET', head.key, 'head', string.format('%.0f %.0f %s', math.max(0, n), version, generation))
  -- A piece that is not new may have lost its TTL to another program (PERSIST, or RESTORE without a TTL).
  if expires > 0 and redis.call('PTTL', head.key) == -1 then redis.call('PEXPIREAT', head.key, expires) end
end

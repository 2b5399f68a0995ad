-- commit: add the items to the chosen slice, and end the session's claims on them. Items that the chosen slice or a newer one
-- holds are not added. ("tbloom import" calls it without a session.)
--
-- Includes   header, changes, claims
--
-- KEYS[1]    the filter's parameters
-- KEYS[2]    its state (add.lua)
-- KEYS[3]    the claims: digest -> session, number, slices, note
-- KEYS[4]    the newest part of the chosen slice. New items go there
-- KEYS[5..]  all other parts of the slices from the chosen one to the current one, grouped by part size; the newest first in
--            a group
--
-- ARGV[1]    the header (shared/header.lua)
-- ARGV[2]    the client's session, 16 characters; '': none
-- ARGV[3]    the items (shared/blocks.lua), each followed by its digest, 16 bytes
--
-- Reply      {0, answers}     a character per item: 1 added now, 0 added before. With fewer characters than items, the part
--                             is full: the next item was not added (set_layout.lua), and is still claimed
--            {1, now}, {4, ''}, {5, layout, parameters}  refused (shared/header.lua); nothing changed
-- Errors     WRONGTYPE, OOM, READONLY, each before anything is changed
--
-- A second copy of the call finds the items in the filter, and changes nothing.

local config_key, state, claims, FIRST_PART = KEYS[1], KEYS[2], KEYS[3], 4
local begins, ends, expires, capacity, part_bytes, columns, version, field, oldest, sizes = read_header(ARGV[1])
local session, items, item_bytes = ARGV[2], ARGV[3], columns + 4 * #sizes / 3 + 16

local now, refused = refusal(begins, ends, redis.call('HGET', state, 'layout'), version, config_key)
if refused then return refused end
if session ~= '' then redis.call('HLEN', claims) end

local at, start, block = next_new(items, 1, item_bytes, sizes, columns, FIRST_PART)
-- Without a block, the part is new, or the server has dropped it together with its items.
local count = block == '' and 0 or items_in(redis.call('HGET', state, field))
local answers, new = insert_new(at, start, block, items, item_bytes, sizes, columns, FIRST_PART, part_bytes, capacity - count)
if new > 0 then
  redis.call('HSET', state, field, argument(count + new))
  keep_ttls(FIRST_PART, count == 0, config_key, state, expires, oldest, now)
end
local done = {}
for ends_at = item_bytes, session ~= '' and #answers * item_bytes or 0, item_bytes do
  local digest = string.sub(items, ends_at - 15, ends_at)
  if owner_of(claims, digest) == session then done[#done + 1] = digest end
end
if #done > 0 then redis.call('HDEL', claims, unpack(done)) end
return {0, answers}

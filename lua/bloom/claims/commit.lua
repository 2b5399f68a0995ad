-- commit: add the items to the chosen slice, and end the session's claims on them. Items that the chosen slice or a newer one
-- holds are not added. ("tbloom import" calls it without a session.)
--
-- Includes   calls, changes, claims
--
-- KEYS[1]    the filter's parameters
-- KEYS[2]    its state (add.lua)
-- KEYS[3]    the claims: digest -> session, number, slices, note
-- KEYS[4]    the newest part of the chosen slice. New items go there
-- KEYS[5..]  all other parts of the slices from the chosen one to the current one, grouped by part size; the newest first in
--            a group
--
-- ARGV[1]    the token (shared/lanes.lua)
-- ARGV[2]    the header (shared/header.lua)
-- ARGV[3]    the client's session, 16 characters; '': none
-- ARGV[4]    the items (shared/blocks.lua), each followed by its digest, 16 bytes
--
-- Reply      {0, answers}     a character per item: 1 added now; 0 added before; with a session also 2: another session has
--                             claimed it; 3: added before, and nobody has claimed it any more. With fewer characters than
--                             items, the part is full: the next item was not added (set_layout.lua), and is still claimed
--            {3, number}      the lane has had a later call: this is a stray copy of an answered call; nothing changed
--            {1, now}, {4, ''}, {5, layout, parameters}  refused (shared/header.lua); nothing changed
-- Errors     WRONGTYPE, OOM, READONLY, each before anything is changed

local config_key, state, claims, FIRST_PART = KEYS[1], KEYS[2], KEYS[3], 4
local number, lane = read_token(ARGV[1])
local begins, ends, version, columns, sizes = read_header(ARGV[2])
local expires, capacity, part_bytes, field, oldest = read_chosen(ARGV[2])
local session, items, item_bytes = ARGV[3], ARGV[4], columns + 4 * #sizes / 3 + 16

local refused, now, entry = begin_call(state, config_key, number, lane, begins, ends, version)
if refused then return refused end
if session ~= '' then redis.call('HLEN', claims) end

local at, start, block = next_new(items, 1, item_bytes, sizes, columns, FIRST_PART)
-- Without a block, the part is new, or the server has dropped it together with its items.
local count = block == '' and 0 or items_in(redis.call('HGET', state, field))
local answers, new = insert_new(at, start, block, items, item_bytes, sizes, columns, FIRST_PART, part_bytes, capacity - count)
if new > 0 then redis.call('HSET', state, field, argument(count + new)) end
local done = {}
if session ~= '' then
  local at = 0
  answers = string.gsub(answers, '.', function(answer)
    at = at + item_bytes
    local digest = string.sub(items, at - 15, at)
    local owner = owner_of(claims, digest)
    if owner == session then
      done[#done + 1] = digest
    elseif owner and owner ~= NOBODY then
      return '2'
    elseif answer == '0' then
      return '3'
    end
  end)
end
if #done > 0 then redis.call('HDEL', claims, unpack(done)) end
-- Without a change, a resent call finds the same answers. This write comes last: a server that is out of memory allows it then.
if new > 0 or #done > 0 then
  redis.call('HSET', state, lane, lane_entry(number, answers, now))
  if count == 0 or not entry then maintain(FIRST_PART, config_key, state, expires, oldest, now) end
end
return {0, answers}

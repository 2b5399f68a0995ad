-- commit: add the items to the chosen slice, and end the session's claims on them. Claims of other sessions lose their notes.
-- Items that the chosen slice or a newer one holds are not added. ("tbloom migrate" calls it without a session.)
--
-- Includes   calls, changes, claims
--
-- KEYS[1]    the filter's parameters
-- KEYS[2]    its state (add.lua)
-- KEYS[3]    the claims (shared/claims.lua)
-- KEYS[4]    the sessions that hold claims (shared/claims.lua)
-- KEYS[5]    the index of left items (shared/claims.lua)
-- KEYS[6]    the newest part of the chosen slice. New items go there
-- KEYS[7..]  all other parts of the slices from the chosen one to the current one, grouped by part size; the newest first in
--            a group
--
-- ARGV[1]    the token (shared/lanes.lua)
-- ARGV[2]    the header (shared/header.lua)
-- ARGV[3]    the client's session, 16 characters; '': none
-- ARGV[4]    the items (shared/blocks.lua), each followed by its digest, 16 bytes
-- ARGV[5]    the queue whose items the session takes; '': none
--
-- Reply      {0, answers}     a character per item: 1 added now; 0 added before; with a session also 2: another session has
--                             claimed it; 3: added before, and nobody has claimed it any more. With fewer characters than
--                             items, the part is full: the next item was not added (set_layout.lua), and is still claimed
--            {0, answers, waiting}  the same; so many sessions wait for items of the queue, and none is left that each of
--                             them may take
--            {3, number}      the lane has had a later call: this is a stray copy of an answered call; nothing changed
--            {1, now}, {4, ''}, {5, layout, parameters}  refused (shared/header.lua); nothing changed
-- Errors     WRONGTYPE, OOM, READONLY, each before anything is changed

local config_key, state, claims, sessions, index, FIRST_PART = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], 6
local number, lane = read_token(ARGV[1])
local begins, ends, version, column_bytes, sizes = read_header(ARGV[2])
local expires, capacity, part_bytes, field, oldest = read_chosen(ARGV[2])
local session, items, queue, item_bytes = ARGV[3], ARGV[4], ARGV[5], column_bytes + 4 * #sizes / 3 + 16

local refused, now, entry = begin_call(state, config_key, number, lane, begins, ends, version)
if refused then return refused end
if session ~= '' then
  redis.call('HLEN', claims)
  redis.call('ZCARD', index)
end
local counted = queue ~= '' and redis.call('HGET', sessions, 'w' .. queue)

local pieces, part = unseen(items, item_bytes, sizes, column_bytes, FIRST_PART), KEYS[FIRST_PART]
local _, piece = next(pieces)
local count = count_in(part, part_bytes, piece, state, field)
local answers, new = insert_new(pieces, items, item_bytes, column_bytes, part, byte(sizes), capacity - count)
if new > 0 then redis.call('HSET', state, field, argument(count + new)) end

-- Ends the claim of an item that was added ('1') now, or ('0') before. Returns its answer.
local done = {}
local function end_claim(digest, answer)
  local owner, claimed_as, place, note = claim_of(claims, digest)
  if owner then unindex(index, owner, place, digest) end
  if owner and owner ~= session and not is_left(owner) then
    -- Without a note, nobody takes the item after its owner, because the work is done.
    if note ~= '' then redis.call('HSET', claims, digest, owner .. claimed_as) end
    return '2'
  end
  if owner then done[#done + 1] = digest end
  return answer == '0' and owner ~= session and '3' or answer
end

if session ~= '' then
  local at = 0
  answers = string.gsub(answers, '.', function(answer)
    at = at + item_bytes
    return end_claim(string.sub(items, at - 15, at), answer)
  end)
end
if #done > 0 then redis.call('HDEL', claims, unpack(done)) end
-- Without a change, a resent call finds the same answers. This write comes last: a server that is out of memory allows it then.
if new > 0 or #done > 0 then
  redis.call('HSET', state, lane, lane_entry(number, answers, now))
  if count == 0 or not entry then maintain(FIRST_PART, config_key, state, expires, oldest, now) end
end

return {0, answers, count_waiting(counted, index, queue, now)}

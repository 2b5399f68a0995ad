"""One chunk of ids in three forms: memory, and server time for an add and for an AND of two."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

import redis
from idsets import CHUNK, bitmap
from serving import command_stats

#: Chunks that share a directory.
CHUNKS = 100
#: Adds two bytes of an id (ARGV[2]) to the sorted ids in a field (ARGV[1]).
ADD_PACKED = """
local ids = redis.call('HGET', KEYS[1], ARGV[1]) or ':'
local low, high = 0, (#ids - 1) / 2
while low < high do
  local middle = math.floor((low + high) / 2)
  if string.sub(ids, 2 + 2 * middle, 3 + 2 * middle) < ARGV[2] then low = middle + 1 else high = middle end
end
if string.sub(ids, 2 + 2 * low, 3 + 2 * low) == ARGV[2] then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], string.sub(ids, 1, 1 + 2 * low) .. ARGV[2] .. string.sub(ids, 2 + 2 * low))
redis.call('HINCRBY', KEYS[1], 'n', 1)
return 1
"""
AND_PACKED = """
local seen, n = {}, 0
for operand = 1, 2 do
  local ids = redis.call('HGET', KEYS[operand], ARGV[1])
  for from = 2, #ids, 200 do
    local bytes = {string.byte(ids, from, math.min(from + 199, #ids))}
    for i = 1, #bytes, 2 do
      local id = bytes[i] * 256 + bytes[i + 1]
      if operand == 1 then seen[id] = true elseif seen[id] then n = n + 1 end
    end
  end
end
return n
"""
#: The same with a key for each chunk; the directory has the number of its ids.
_ADD_ELSEWHERE = """
if redis.call('{}') == {} then return 0 end
redis.call('HINCRBY', KEYS[1], ARGV[1], 1)
redis.call('HINCRBY', KEYS[1], 'n', 1)
return 1
"""
ADD_TO_SET = _ADD_ELSEWHERE.replace("'{}'", "'SADD', KEYS[2], ARGV[2]").replace("{}", "0")
ADD_BIT = _ADD_ELSEWHERE.replace("'{}'", "'SETBIT', KEYS[2], ARGV[2], 1").replace("{}", "1")
AND_SETS = "return redis.call('SINTERCARD', 2, KEYS[1], KEYS[2])"
AND_BITS = """
redis.call('BITOP', 'AND', KEYS[3], KEYS[1], KEYS[2])
local n = redis.call('BITCOUNT', KEYS[3])
redis.call('UNLINK', KEYS[3])
return n
"""


class Form(NamedTuple):
    name: str
    #: Writes a chunk, given the directory's key, its own key, its number, its ids.
    write: Callable[[redis.Redis, str, str, int, list[int]], Any]
    add: str
    combine: str
    #: The chunk is in the directory.
    is_inside: bool = False
    #: An id as the scripts take it.
    word: Callable[[int], Any] = int


def packed(ids: list[int]) -> bytes:
    return b":" + b"".join(number.to_bytes(2, "big") for number in sorted(ids))


def _write_packed(client: redis.Redis, directory: str, _: str, number: int, ids: list[int]) -> None:
    client.hset(directory, str(number), packed(ids))


def _write_set(client: redis.Redis, directory: str, key: str, number: int, ids: list[int]) -> None:
    client.sadd(key, *[_signed(one) for one in ids])
    client.hset(directory, str(number), len(ids))


def _write_bitmap(
    client: redis.Redis, directory: str, key: str, number: int, ids: list[int]
) -> None:
    client.set(key, bitmap(ids, CHUNK // 8))
    client.hset(directory, str(number), len(ids))


def _signed(number: int) -> int:
    """As two bytes in an intset."""
    return number - CHUNK // 2


FORMS = [
    Form(
        "sorted, packed, in the directory",
        _write_packed,
        ADD_PACKED,
        AND_PACKED,
        is_inside=True,
        word=lambda number: number.to_bytes(2, "big"),
    ),
    Form("a SET", _write_set, ADD_TO_SET, AND_SETS, word=_signed),
    Form("a bitmap", _write_bitmap, ADD_BIT, AND_BITS),
]


def chunk_forms(client: redis.Redis, sizes: list[int], times: int) -> list[dict[str, Any]]:
    """For each number of ids and each form: bytes, directory included, and the server's time (us)."""
    rows = []
    for ids in sizes:
        for form in FORMS:
            try:
                rows.append({"ids": ids, "name": form.name, **_costs(client, form, ids, times)})
            except redis.ResponseError as error:
                if "SINTERCARD" not in str(error) and "Unknown Redis command" not in str(error):
                    raise
            client.flushall()
    return rows


def _costs(client: redis.Redis, form: Form, ids: int, times: int) -> dict[str, Any]:
    chance = random.Random(ids)
    a, b = "{ids}:chunks:a:all", "{ids}:chunks:b:all"
    keys = [f"{{ids}}:chunk:a:all:{number}" for number in range(CHUNKS)]
    for number, key in enumerate(keys):
        form.write(client, a, key, number, chance.sample(range(CHUNK), ids))
    used = sum(client.memory_usage(key, samples=0) or 0 for key in (a, *keys))
    encoding = client.object("encoding", a if form.is_inside else keys[0])
    drawn = chance.sample(range(CHUNK), ids + times)
    there, others = drawn[:ids], iter(drawn[ids:])
    form.write(client, a, "one", CHUNKS, there)
    form.write(client, b, "other", CHUNKS, chance.sample(range(CHUNK), ids))
    combine, add = client.register_script(form.combine), client.register_script(form.add)
    operands = [a, b] if form.is_inside else ["one", "other", "scratch"]
    combined = _usec(client, times, lambda: combine(keys=operands, args=[CHUNKS]))
    added = _usec(
        client, times, lambda: add(keys=[a, "one"], args=[CHUNKS, form.word(next(others))])
    )
    return {
        "bytes": used / CHUNKS,
        "encoding": encoding.decode(),
        "add": added,
        "and": combined,
    }


def _usec(client: redis.Redis, times: int, call: Callable[[], Any]) -> float:
    """The server's time for a call; the first one, which loads the script, is left out."""
    call()
    client.config_resetstat()
    for _ in range(times - 1):
        call()
    return float(command_stats(client)["evalsha"]["usec_per_call"])

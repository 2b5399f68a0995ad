"""What a server holds; and where an item's bits are, and a counter's ids, read from the keys and not by tbloom."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

import redis

from tbloom.arguments import encode, fingerprint
from tbloom.bloom.hasher import packed
from tbloom.distinct.config import MappingKeys
from tbloom.engine.flow import text


def keys_of(client: redis.Redis, name: str = "") -> list[Any]:
    """The keys with this name in theirs, in order, but for those that hold calls' answers alone."""
    keys = client.scan_iter(f"*{name}*", 1000)
    return sorted(key for key in keys if not _has_answers_alone(client, key))


def snapshot(client: redis.Redis, name: str = "", *, lanes: bool = True) -> dict[Any, Any]:
    """What is stored under the name, byte for byte; ``lanes``: also calls' answers."""
    keys = client.scan_iter(f"*{name}*", 1000) if lanes else keys_of(client, name)
    return {
        key: without_lanes(client, key)
        if not lanes and text(key).endswith(":state") and text(client.type(key)) == "hash"
        else client.execute_command("DUMP", key, NEVER_DECODE=True)
        for key in keys
    }


def without_lanes(client: redis.Redis, state: Any) -> dict[str, Any]:
    """What a filter's state has beside its lanes, and the time at which it was cleared."""
    fields = {text(field): value for field, value in client.hgetall(state).items()}
    return {
        field: value for field, value in fields.items() if not field.startswith(("L", "cleared"))
    }


def _has_answers_alone(client: redis.Redis, key: Any) -> bool:
    if text(key).endswith(":state") and text(client.type(key)) == "hash":
        return not without_lanes(client, key)
    return ":lane:" in text(key)


def block_of(digest: bytes, blocks: int) -> int:
    """The number of the item's block, 0 .. blocks-1."""
    return int.from_bytes(packed([digest], 1, [(blocks, 1)])[32:], "little")


def ids_of(client: redis.Redis, mapping: str) -> dict[bytes, int]:
    """The ids that the mapping has given, by the members' fingerprints; each in one bucket."""
    ids: dict[bytes, int] = {}
    for key in client.scan_iter(f"{{{mapping}}}:ids:*", 1000):
        bucket = client.hgetall(key)
        assert not bucket.keys() & ids.keys()
        ids |= {print: int(id.partition(b":")[0]) for print, id in bucket.items()}
    return ids


def counted(client: redis.Redis, mapping: str, counter: str, label: str = "all") -> list[int]:
    """The ids that one slice of a counter has counted; each container, and each head, is as docs/format.md has it."""
    keys, ids = MappingKeys(mapping), list[int]()
    entry = client.hget(keys.counters(), counter)
    for piece in range(16):
        stored = client.hgetall(keys.piece(counter, label, piece))
        n, _, generation = stored.pop(b"head", b"0 0 none").split()
        if entry is None or generation != entry.split(b" ")[0]:
            continue  # from before a clear()
        chunks = {int(field): _lows(container) for field, container in stored.items()}
        assert all(chunk >> 12 == piece for chunk in chunks)
        assert int(n) == sum(map(len, chunks.values()))
        ids += [chunk << 16 | low for chunk, lows in sorted(chunks.items()) for low in lows]
    return ids


def _lows(container: bytes) -> list[int]:
    """The ids in a container, without their chunk."""
    form, data = container[:1], container[1:]
    if form == b"b":
        assert len(data) == 2 + 8192
        bits = int.from_bytes(data[2:], "little")
        lows = [low for low in range(65536) if bits >> low & 1] if bits else []
        assert len(lows) == int.from_bytes(data[:2], "little") + 1
        return lows
    numbers = struct.unpack(f"<{len(data) // 2}H", data)
    if form == b"a":
        assert 1 <= len(numbers) <= 4096
        lows = [*numbers]
    else:
        assert form == b"r"
        assert 1 <= numbers[0] == (len(numbers) - 1) / 2 < 2048
        pairs = [*zip(numbers[1::2], numbers[2::2], strict=True)]
        lows = [low for first, more in pairs for low in range(first, first + more + 1)]
        ends = [first + more for first, more in pairs]
        assert all(one + 1 < other for one, (other, _) in zip(ends, pairs[1:], strict=False))
    assert lows == sorted({*lows})
    assert lows[-1] < 65536
    return lows


def check_mapping(url: str, mapping: str, counters: dict[str, Iterable[str]]) -> None:
    """Ids are 0, 1, 2, ..., each given once, to members of these counters and to no others; and each counter has counted
    its members, and no others."""
    members = {name: {*some} for name, some in counters.items()}
    with redis.Redis.from_url(url) as client:
        ids = ids_of(client, mapping)
        assert [*range(len(ids))] == sorted(ids.values())
        prints = {
            member: fingerprint(encode(member)).to_bytes(16, "big")
            for member in set().union(*members.values())
        }
        assert {*prints.values()} == ids.keys()
        assert len(ids) == int(client.get(MappingKeys(mapping).members()) or 0)
        for name, some in members.items():
            own = sorted(ids[prints[member]] for member in some)
            assert own == counted(client, mapping, name)

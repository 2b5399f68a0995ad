"""What a mapping and its counters hold, read from their keys and not by tbloom."""

from __future__ import annotations

from collections.abc import Iterable

import redis

from tbloom.engine.keys import Keys
from tbloom.items import encode, fingerprint


def ids_of(client: redis.Redis, mapping: str) -> dict[bytes, int]:
    """The ids that the mapping has given, by the members' fingerprints; each in one bucket."""
    ids: dict[bytes, int] = {}
    for key in client.scan_iter(f"{{{mapping}}}:ids:*", 1000):
        bucket = client.hgetall(key)
        assert not bucket.keys() & ids.keys()
        ids |= {print: int(id) for print, id in bucket.items()}
    return ids


def counted(client: redis.Redis, mapping: str, counter: str, label: str = "all") -> list[int]:
    """The ids that one slice of a counter has counted."""
    keys, ids = Keys(mapping), []
    for field, entry in client.hgetall(keys.directory(counter, label)).items():
        if not field.isdigit():
            continue
        if entry.startswith(b":"):
            lows = [int.from_bytes(entry[i : i + 2], "big") for i in range(1, len(entry), 2)]
            assert lows == sorted({*lows})
        else:
            bitmap = client.get(keys.bitmap(counter, label, int(field)))
            bits = f"{int.from_bytes(bitmap, 'big'):065536b}"
            lows = [i for i, bit in enumerate(bits) if bit == "1"]
            assert int(entry) == len(lows) > 4096
            assert len(bitmap) == 8192
        ids += [int(field) << 16 | low for low in lows]
    return ids


def check(url: str, mapping: str, counters: dict[str, Iterable[str]]) -> None:
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
        assert len(ids) == int(client.get(Keys(mapping).members()) or 0)
        for name, some in members.items():
            own = sorted(ids[prints[member]] for member in some)
            assert own == sorted(counted(client, mapping, name))
            n = client.hget(Keys(mapping).directory(name, "all"), "n")
            assert len(own) == int(n or 0)

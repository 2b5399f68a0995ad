"""The counted ids, and a mapping that assigns them."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import redis

from tbloom import DistinctCounter
from tbloom.engine.flow import chunks
from tbloom.items import encode, fingerprint

CHUNK = 1 << 16
#: Length of a run of spread ids; the runs are at equal distances.
RUN = 100
#: Members that get consecutive ids at once.
AT_ONCE = 1000
#: Measurements of the mapping's memory between two doublings.
STEPS = 4


class Scenario(NamedTuple):
    """Two sets of ids."""

    name: str
    a: Sequence[int]
    b: Sequence[int]
    #: Ids of members that the mapping knows, in neither set or in ``b``: in no order.
    spare: Sequence[int]


class Given(NamedTuple):
    """The ids that the mapping gives: spread over the whole space, and in one run and ten, each of three parts."""

    space: int
    spread: list[int]
    run: range
    ten: list[range]

    @classmethod
    def of(cls, space: int, members: int) -> Given:
        unit = members // 20
        run = range(space // 2, space // 2 + 3 * unit)
        starts = range(space // 20, space, space // 10)
        ten = [range(start, start + 3 * unit // 10) for start in starts]
        near = [*ten, range(run.start - RUN, run.stop)]
        distance = space * RUN // (members - 6 * unit)
        spread = chain.from_iterable(
            range(start, start + RUN)
            for start in range(0, space - RUN, distance)
            if not any(start < other.stop and other.start < start + RUN for other in near)
        )
        return cls(space, [*spread], run, ten)

    def runs(self) -> Iterator[range]:
        """All of them in order, in runs that are given at once."""
        runs = [range(start, start + RUN) for start in self.spread[::RUN]]
        for each in (self.run, *self.ten):
            runs += [
                range(at, min(at + AT_ONCE, each.stop))
                for at in range(each.start, each.stop, AT_ONCE)
            ]
        return iter(sorted(runs, key=lambda run: run.start))


def member(number: int) -> str:
    """The member for this id; in one batch the order may differ."""
    return f"user:{number:08}"


def named(client: redis.Redis, mapping: str, members: Iterable[str]) -> dict[int, str]:
    """By id, the member that has it."""
    names = {fingerprint(encode(name)).to_bytes(16, "big"): name for name in members}
    found = {}
    for buckets in chunks([*client.scan_iter(f"{{{mapping}}}:ids:*", count=1000)], 1000):
        with client.pipeline(transaction=False) as pipeline:
            for bucket in buckets:
                pipeline.hgetall(bucket)
            for entries in pipeline.execute():
                found.update({int(number): names[key] for key, number in entries.items()})
    return found


def give(client: redis.Redis, url: str, given: Given) -> tuple[dict[str, Any], dict[int, str]]:
    """Has the mapping give these ids; what it then takes, and what it took on the way; and who has which id.

    The mapping gives the next id that is free. That number is raised by hand before each run.
    """
    everybody: list[str] = []
    growth, done, elapsed = [], 0, 0.0
    runs = [*given.runs()]
    total = sum(map(len, runs))
    sizes = [total * 2 ** (-step / STEPS) for step in range(STEPS, -1, -1)]
    with DistinctCounter.from_url(url, "everyone") as everyone:
        for run in runs:
            if run.start:
                client.set(everyone.config.keys.members(), run.start)
            names, start = [*map(member, run)], time.perf_counter()
            assert all(everyone.add_many(names))
            elapsed += time.perf_counter() - start
            everybody += names
            done += len(run)
            if done >= sizes[0]:
                sizes.pop(0)
                info = everyone.info()
                growth.append(
                    {"members": done, "bytes": info.mapping_bytes / done, "buckets": info.buckets}
                )
        client.set(everyone.config.keys.members(), given.space)
        everyone.clear()
        names_of = named(client, everyone.mapping, everybody)
    assert names_of.keys() == {*chain.from_iterable(runs)}
    return {"members": done, "seconds": elapsed, "growth": growth}, names_of


def bytes_in_hash(client: redis.Redis, members: int) -> float:
    """Bytes per member in one hash of members and ids, written by hand."""
    for start in range(0, members, AT_ONCE):
        numbers = range(start, min(start + AT_ONCE, members))
        client.hset("by hand", mapping={member(number): number for number in numbers})
    used: int = client.memory_usage("by hand", samples=0)
    client.delete("by hand")  # in the foreground, so as not to disturb the next measurement
    return used / members


def sparse(given: Given, count: int = 10) -> Scenario:
    """``count`` of the spread ids for each set; half of them are in both."""
    chance = random.Random(count)
    ids = chance.sample(given.spread, len(given.spread))
    half = count // 2
    a, b, spare = ids[:count], ids[half : half + count], ids[half + count :]
    share = count / given.space
    name = f"sparse: {count}" if count <= 10 else f"scattered: {100 * share:g} %"
    return Scenario(name, sorted(a), sorted(b), spare)


def clustered(given: Given) -> list[Scenario]:
    """The first two parts of each run, and the last two."""
    scenarios = []
    for runs in ([given.run], given.ten):
        third = len(runs[0]) // 3
        a = [number for run in runs for number in run[: 2 * third]]
        b = [number for run in runs for number in run[third : 3 * third]]
        added = sorted({*b} - {*a})
        spare = random.Random(third).sample(added, len(added))
        name = f"clustered: {len(a):,}" + (f" in {len(runs)} runs" if runs[1:] else "")
        scenarios.append(Scenario(name, a, b, spare))
    return scenarios


def bitmap(ids: Sequence[int], size: int) -> bytes:
    """A bitmap of ``size`` bytes, in Redis' order of bits."""
    bits = bytearray(size)
    for number in ids:
        bits[number // 8] |= 128 >> number % 8
    return bytes(bits)


class Dense(NamedTuple):
    """Half of all ids for each, as bitmaps."""

    a: bytes
    b: bytes


def dense(given: Given) -> tuple[Scenario, Dense]:
    bits = [random.Random(f"dense {n}").randbytes(given.space // 8) for n in range(2)]
    a, b = ([*map(int, np.unpackbits(np.frombuffer(each, np.uint8)).nonzero()[0])] for each in bits)
    spare = sorted({*given.spread} - {*a})
    spare = random.Random(0).sample(spare, len(spare))
    return Scenario(f"dense: half of {given.space:,}", a, b, spare), Dense(*bits)


def write(client: redis.Redis, counter: DistinctCounter, bits: bytes) -> None:
    """Writes a counter's chunks, all of them bitmaps, in the counter's format."""
    counter.add(member(0))  # the parameters, and the directory's other field
    keys, name = counter.config.keys, counter.name
    fields = {}
    for chunk, at in enumerate(range(0, len(bits), CHUNK // 8)):
        part = bits[at : at + CHUNK // 8].ljust(CHUNK // 8, b"\0")
        fields[f"{chunk}"] = int.from_bytes(part, "big").bit_count()
        client.set(keys.bitmap(name, "all", chunk), part)
    assert min(fields.values()) > 4096
    client.hset(keys.directory(name, "all"), mapping={**fields, "n": sum(fields.values())})


def check_written(client: redis.Redis, url: str, counter: DistinctCounter, a: list[int]) -> None:
    """Compares the first chunk with one made by ``add_many``."""
    with (
        DistinctCounter.from_url(url, "all", mapping="check") as everyone,
        DistinctCounter.from_url(url, "half", mapping="check") as half,
    ):
        members = [*map(member, range(CHUNK))]
        everyone.add_many(members)
        names = named(client, "check", members)
        assert all(half.add_many(names[number] for number in a if number < CHUNK))
        found = []
        for each in (counter, half):
            keys, name = each.config.keys, each.name
            field, bits = client.hget(keys.directory(name, "all"), "0"), keys.bitmap(name, "all", 0)
            taken = client.memory_usage(bits) // 1024  # the keys' names differ
            found.append((field, client.get(bits), taken))
        assert found[0] == found[1], "not what the product would have written"
        half.clear(mapping=True)

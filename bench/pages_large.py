"""Many pages of real size, once: ``python bench/pages_large.py 100e9 /folder``, in an hour, and 20 GB of disk there.

Writes ``pages_large.json`` beside it, from which the page of benchmarks tells it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timezone
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from isal import isal_zlib
from machine import machine
from made import MadePages
from stored import RealPages, drop_from_memory, opening, taken

from tbloom.pages import PageStore, members

RESULTS = Path(__file__).with_name("pages_large.json")
#: Of each kind in each round, and rounds.
GETS, ROUNDS = 2_000, 5
#: Parts whose rates are measured separately.
PARTS = 10
#: Pages made at once, and got at once.
BATCH = 100
#: What the gets are compared with: random reads of this size, each at a multiple of it.
READ_BYTES = 1 << 16


def large(path: Path, of: MadePages, pages: int) -> dict[str, Any]:
    """Puts ``pages`` pages into a new store, gets some from the disk, and reads all."""
    found = {
        "when": datetime.now(timezone.utc).isoformat(timespec="minutes"),
        "machine": machine(),
        "load": os.getloadavg()[0],
        "pages": pages,
        "like": likeness(of),
        **filled(path, of, pages),
        **asked(path, of, pages, rounds=ROUNDS, gets=min(GETS, pages // ROUNDS // 10)),
        "disk_bytes": taken(path)["bytes"],
        "opening": opening(path, 3),
    }
    return found | _through(path, pages + 1)  # with that of ``opening``


def likeness(of: MadePages) -> dict[str, float]:
    """How many times shorter the store's compressor makes real pages, and as many made ones."""

    def times(bodies: list[bytes]) -> float:
        return sum(map(len, bodies)) / sum(map(_deflated, bodies))

    real = of.real.bodies
    return {"real": times(real), "made": times([of.body(number) for number in range(len(real))])}


def _deflated(body: bytes) -> int:
    compressor = isal_zlib.compressobj(members.LEVEL, isal_zlib.DEFLATED, -15)
    return len(compressor.compress(body) + compressor.flush())


def filled(path: Path, of: MadePages, pages: int) -> dict[str, Any]:
    """Puts the pages; the time to make them does not count."""
    with PageStore(path) as store:
        before = _memory()
        parts = [
            _put(store, of, range(part * pages // PARTS, (part + 1) * pages // PARTS))
            for part in range(PARTS)
        ]
        memory = _memory()
        start = time.perf_counter()
        store.flush()
        flush = time.perf_counter() - start
        info = store.stats()
    assert pages == info.pages
    return {
        "body_bytes": sum(length for length, _ in parts),
        "part_seconds": [seconds for _, seconds in parts],
        "flush_seconds": flush,
        "memory_before": before,
        "memory": memory,
        "index_bytes": info.index_bytes,
        "segment_bytes": info.bytes - info.index_bytes,
        "segments": info.segments,
    }


def _put(store: PageStore, of: MadePages, numbers: range) -> tuple[int, float]:
    """The length of the bodies, and the seconds."""
    length, elapsed, rest = 0, 0.0, iter(numbers)
    while batch := [
        (of.url(number), of.body(number), of.headers(number)) for number in islice(rest, BATCH)
    ]:
        start = time.perf_counter()
        for url, body, headers in batch:
            store.put(url, body, headers=headers)
        elapsed += time.perf_counter() - start
        length += sum(len(body) for _, body, _ in batch)
    print(f"{numbers.stop:,} pages: {elapsed / len(numbers) * 1e6:.0f} us each", flush=True)
    return length, elapsed


class Cost(NamedTuple):
    """Of a call, or of each page of a call."""

    seconds: float
    #: The slowest of a hundred takes longer.
    slow: float
    #: Time of the processor.
    cpu: float
    #: Bytes that came from the disk.
    read: float


def asked(path: Path, of: MadePages, pages: int, *, rounds: int, gets: int) -> dict[str, Any]:
    """Each way asks for other pages in each round, in turns; all is dropped from the page cache before."""
    ways = _ways(path, of)
    drawn = iter(random.Random(1).sample(range(pages), rounds * gets * len(ways)))
    costs: dict[str, list[Cost]] = {way: [] for way in ways}
    for turn in range(rounds):
        order = [*ways]
        for way in order[turn % len(order) :] + order[: turn % len(order)]:
            drop_from_memory(path)
            drop_from_memory(path, "data.mdb")
            costs[way].append(ways[way]([*islice(drawn, gets)]))
            print(turn, way, *(f"{figure * 1e6:,.0f}" for figure in costs[way][-1]), flush=True)
    reads = costs["read"]
    return {
        "gets": gets,
        "rounds": rounds,
        "ways": {
            way: {
                **{
                    name: median(one)
                    for name, one in zip(Cost._fields, zip(*each, strict=True), strict=True)
                },
                "total": sum(cost.seconds for cost in each) * gets,
                "ratio": median(
                    cost.seconds / read.seconds for cost, read in zip(each, reads, strict=True)
                ),
            }
            for way, each in costs.items()
        },
    }


def _ways(path: Path, of: MadePages) -> dict[str, Callable[[Sequence[int]], Cost]]:
    def opened(
        ask: Callable[[PageStore, Any], Any],
        items: Callable[[Sequence[int]], Sequence[Any]],
        right: Callable[[Any], Any],
        *,
        each: int = 1,
        is_warm: bool = False,
    ) -> Callable[[Sequence[int]], Cost]:
        def way(numbers: Sequence[int]) -> Cost:
            with PageStore(path, readonly=True) as store:
                assert "https://docs.example.com/" not in store  # the index is open
                if is_warm:
                    for index in path.glob("index-*/data.mdb"):
                        index.read_bytes()
                return _cost(lambda item: ask(store, item), items(numbers), right, each)

        return way

    def one(store: PageStore, number: int) -> bytes:
        page = store.get(of.url(number))
        assert page is not None
        return page.body

    def many(store: PageStore, numbers: Sequence[int]) -> list[bytes]:
        return [page.body for page in store.get_many(map(of.url, numbers))]  # type: ignore[union-attr]

    def batches(numbers: Sequence[int]) -> list[Sequence[int]]:
        return [numbers[at : at + BATCH] for at in range(0, len(numbers), BATCH)]

    def bodies(numbers: Sequence[int]) -> list[bytes]:
        return [of.body(number) for number in numbers]

    return {
        "read": lambda numbers: _reads(path, len(numbers)),
        "get": opened(one, list, of.body),
        "get_warm": opened(one, list, of.body, is_warm=True),
        "get_many": opened(many, batches, bodies, each=BATCH),
        "in": opened(lambda store, number: of.url(number) in store, list, lambda _: True),
        "not_in": opened(
            lambda store, number: of.url(number) + "?" in store, list, lambda _: False
        ),
    }


def _cost(
    ask: Callable[[Any], Any], items: Sequence[Any], right: Callable[[Any], Any], each: int = 1
) -> Cost:
    """Asks for all items, and compares the answers with the right ones meanwhile, which does not count."""
    seconds, cpu, before = [], 0.0, _read_bytes()
    for item in items:
        busy, start = time.process_time(), time.perf_counter()
        answer = ask(item)
        seconds.append(time.perf_counter() - start)
        cpu += time.process_time() - busy
        assert answer == right(item), item
    calls = len(items) * each
    slow = sorted(seconds)[len(seconds) * 99 // 100] / each
    return Cost(sum(seconds) / calls, slow, cpu / calls, (_read_bytes() - before) / calls)


def _reads(path: Path, count: int) -> Cost:
    """Random reads of the segments."""
    paths = [*path.glob("*.warc.gz")]
    sizes = [path.stat().st_size for path in paths]
    files = [os.open(path, os.O_RDONLY) for path in paths]
    rng = random.Random(sum(sizes) + time.time_ns())
    try:
        for file in files:
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)
        places = [
            (file, rng.randrange(max(1, size // READ_BYTES)) * READ_BYTES)
            for file, size in rng.choices([*zip(files, sizes, strict=True)], sizes, k=count)
        ]
        return _cost(
            lambda place: bool(os.pread(place[0], READ_BYTES, place[1])), places, lambda _: True
        )
    finally:
        for file in files:
            os.close(file)


def _through(path: Path, pages: int) -> dict[str, Any]:
    """Reads the whole store, from the disk."""
    drop_from_memory(path)
    with PageStore(path, readonly=True) as store:
        start = time.perf_counter()
        report = store.verify()
        verify = time.perf_counter() - start
    assert (pages, ()) == (report.pages, report.problems)
    drop_from_memory(path)
    start = time.perf_counter()
    info = PageStore.rebuild(path)
    rebuild = time.perf_counter() - start
    assert pages == info.pages
    return {
        "verify_seconds": verify,
        "rebuild_seconds": rebuild,
        "rebuilt_index_bytes": info.index_bytes,
    }


def _proc(name: str) -> Iterator[tuple[str, int]]:
    """The numbers in a file of this process in /proc."""
    for line in Path("/proc/self", name).read_text().splitlines():
        key, _, value = line.partition(":")
        number, *_ = [*value.split(), ""]
        if number.isdigit():
            yield key, int(number)


def _read_bytes() -> int:
    return dict(_proc("io"))["read_bytes"]


def _memory() -> int:
    """Bytes of memory of this process, with what it has read of the index, which the system may take back."""
    return dict(_proc("status"))["VmRSS"] * 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("bytes", type=float, help="of the bodies")
    parser.add_argument("folder", type=Path, help="for the store, which stays there")
    parser.add_argument("--json", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    of = MadePages(RealPages())
    found = large(arguments.folder / "store", of, int(arguments.bytes / of.mean_bytes))
    arguments.json.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()

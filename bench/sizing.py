"""The slices of a filter without a capacity, beside slices of exactly the right size."""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import redis

from bench.contest import fingerprints
from bench.serving import Server
from bench.tables import Table
from tbloom import TimeBloom
from tbloom.bloom.config import configure
from tbloom.bloom.sizing import key_bytes
from tests.helpers.servers import Clockwork

CHANGES = {"steady": 1.0, "a tenth more each day": 1.1, "a tenth fewer each day": 0.9}
CHUNK = 10_000


def measure(server: Server, *, days: dict[int, int], questions: int) -> list[Table]:
    """Streams of so many items a day, for so many days, each on a server whose clock is moved from day to day."""
    rows = [
        _stream(items, name, count, questions) for items, count in days.items() for name in CHANGES
    ]
    columns = {"items on the first day": ",d", "": "", "days": "d", "bytes an item": ".2f"}
    columns |= {"x the right size": ".2f", "in the worst slice": ".2f", "most parts": "d"}
    return [
        Table("sizing", {**columns, "mistakes": ".1e"}, rows),
        _new_filters(server, min(10**6, max(days))),
    ]


def _new_filters(server: Server, items: int) -> Table:
    """The time that the items take in a new filter, in batches of 500; medians of three rounds in turn."""
    made: dict[str, dict[str, Any]] = {
        "with that capacity": {"capacity": items},
        "without one, `expect()`": {"expected": items},
        "without one": {},
    }
    taken: dict[str, list[float]] = {name: [] for name in made}
    for round_ in range(3):
        batches = [fingerprints(f"{round_} {at}", 500) for at in range(0, items, 500)]
        for name, given in made.items():
            with TimeBloom.from_url(server.url, "new", capacity=given.get("capacity")) as seen:
                seen.expect(given.get("expected", 0))
                begins = time.perf_counter()
                for batch in batches:
                    seen.add_many(batch)
                taken[name].append(time.perf_counter() - begins)
            server.empty()
    medians = {name: statistics.median(each) for name, each in taken.items()}
    least = medians["with that capacity"]
    rows = [[name, items, each, each / least] for name, each in medians.items()]
    return Table("sizing-new", {"": "", "items": ",d", "seconds": ".1f", "x": ".2f"}, rows)


def _stream(items: int, name: str, days: int, questions: int) -> list[Any]:
    """What stands in its row; sizes are those of the slices from the second on."""
    held: list[int] = []
    taken: list[int] = []
    right: list[int] = []
    parts: list[int] = []
    with tempfile.TemporaryDirectory() as folder:
        clock = Clockwork(Path(folder), busy=True)
        with (
            clock.server as server,
            redis.Redis.from_url(server.url) as client,
            TimeBloom.from_url(server.url, "sized") as seen,
        ):
            for day in range(1, days + 1):
                clock.set(f"2019-06-{2 + day:02} 12:00:00")
                count = round(items * CHANGES[name] ** (day - 1))
                for start in range(0, count, CHUNK):
                    seen.add_many(fingerprints(f"{day} {start}", min(CHUNK, count - start)))
                newest = seen.info().slices[-1]
                keys = client.keys(f"{{sized}}:{newest.label}*")
                held.append(newest.items)
                taken.append(sum(map(client.strlen, keys)))
                right.append(key_bytes(configure("right", capacity=count).bits))
                parts.append(newest.parts)
            chunks = (fingerprints(f"other {n}", CHUNK) for n in range(questions // CHUNK))
            mistakes = sum(sum(seen.contains_many(some)) for some in chunks) / questions
    ratios = [used / of for used, of in zip(taken[1:], right[1:], strict=True)]
    sizes = [sum(taken[1:]) / sum(held[1:]), sum(taken[1:]) / sum(right[1:]), max(ratios)]
    return [items, name, days, *sizes, max(parts[1:]), mistakes]

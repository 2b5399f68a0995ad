"""The slices of a filter without a capacity, compared with slices of exactly the right size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench.contest import fingerprints
from bench.progress import shown
from bench.serving import Server
from bench.tables import Table
from tbloom import TimeBloom
from tbloom.bloom.config import configure
from tbloom.bloom.sizing import key_bytes
from tests.helpers.clock import Clockwork

CHANGES = {"steady": 1.0, "a tenth more each day": 1.1, "a tenth fewer each day": 0.9}
#: Items on the first day, and days.
DAYS = {10**3: 8, 10**6: 3}
CHUNK = 10_000


def measure(
    _server: Server, *, days: Mapping[int, int] = DAYS, questions: int = 1_000_000
) -> list[Table]:
    """Add streams of items to filters, each on a server whose clock is set from day to day; ``days``: items a day, and days."""
    streams = [(items, name, count) for items, count in days.items() for name in CHANGES]
    rows = [_stream(*stream, questions) for stream in shown(streams, "sizing")]
    columns = {"items on the first day": ",d", "": "", "bytes an item": ".2f"}
    columns |= {"x the right size": ".2f", "false positives": ".1e"}
    return [Table("sizing", columns, rows)]


def _stream(items: int, name: str, days: int, questions: int) -> list[Any]:
    """Return the row of a stream. Its sizes are those of all slices but the first."""
    found: list[tuple[int, int, int]] = []
    with Clockwork() as clock, TimeBloom.from_url(clock.server.url, "sized") as seen:
        for day in range(1, days + 1):
            clock.set(f"2019-06-{2 + day:02} 12:00:00")
            count = round(items * CHANGES[name] ** (day - 1))
            for start in range(0, count, CHUNK):
                seen.add_many(fingerprints(f"{day} {start}", min(CHUNK, count - start)))
            newest = seen.info().slices[-1]
            keys = clock.client.keys(f"{{sized}}:{newest.label}*")
            taken = sum(map(clock.client.strlen, keys))
            right = key_bytes(configure("right", capacity=count).bits)
            found.append((newest.items, taken, right))
        chunks = (fingerprints(f"other {n}", CHUNK) for n in range(questions // CHUNK))
        rate = sum(sum(seen.contains_many(some)) for some in chunks) / questions
    held, used, needed = map(sum, zip(*found[1:], strict=True))
    return [items, name, used / held, used / needed, rate]

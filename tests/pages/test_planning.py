"""The plan of a store, compared with real stores."""

from __future__ import annotations

import random
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from tbloom.cli.commands.pages import planning
from tbloom.pages import PageStore

#: As web servers send them.
HEADERS = {
    "Date": "Tue, 04 Jun 2019 08:00:00 GMT",
    "Server": "nginx/1.22.1",
    "Content-Type": "text/html; charset=utf-8",
    "Content-Length": "300",
    "Last-Modified": "Mon, 03 Jun 2019 11:22:33 GMT",
    "ETag": '"1a-58a6b2c3d4e5f"',
    "Cache-Control": "max-age=600",
    "Vary": "Accept-Encoding",
}


@pytest.mark.parametrize(("codec", "slices"), [("gzip", 1), ("zstd", 8), ("identity", 3)])
def test_a_store_takes_what_was_planned(path: Path, codec: str, slices: int) -> None:
    """Within a tenth, with bodies that do not compress; a small index within some pages of LMDB."""
    pages, rng, at = 1000, random.Random(0), datetime.now(timezone.utc)
    with PageStore(
        path, *(("d", slices) if slices > 1 else ()), codec=codec, segment_bytes=100_000
    ) as store:
        for number in range(pages):
            store.put(
                f"https://example.com/{number}",
                rng.randbytes(300),
                headers=HEADERS,
                at=at - timedelta(days=number % slices),
            )
        info = store.stats()
    plan = planning.plan(pages, 300, codec=codec, ratio=1, slices=slices, segment_bytes=100_000)
    assert info.bytes - info.index_bytes == pytest.approx(plan.segment_bytes, rel=0.1)
    assert info.index_bytes == pytest.approx(plan.index_bytes, rel=0.1, abs=60_000)
    assert info.segments == pytest.approx(plan.segments, rel=0.1)


def test_more_cores_help_until_the_disk_is_the_limit() -> None:
    seconds = [
        planning.plan(10**6, 10**5, cores=cores).verify_seconds for cores in (1, 2, 100, 200)
    ]
    assert seconds[0] == pytest.approx(2 * seconds[1])
    assert seconds[1] > seconds[2] == seconds[3] == planning.plan(10**6, 10**5).copy_seconds

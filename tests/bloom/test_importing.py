"""``import_many``: into every slice, beside other clients, and as slices grow."""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import Any

import pytest

from tbloom import TimeBloom
from tests.helpers.proxy import LossyProxy, every


def labels(seen: TimeBloom) -> list[str]:
    """The labels of the live slices, oldest first."""
    return [slice.label for slice in seen.info().slices]


def held(seen: TimeBloom) -> dict[str, int]:
    """The number of items of each slice that has some."""
    return {slice.label: slice.items for slice in seen.info().slices if slice.items}


@contextmanager
def target(url: str, name: str, **parameters: Any) -> Iterator[TimeBloom]:
    with TimeBloom.from_url(url, name, **{"capacity": 1000, **parameters}) as seen:
        yield seen


def test_an_item_of_a_newer_slice_is_not_added_and_one_of_an_older_slice_is(
    url: str, name: str
) -> None:
    """So it is remembered at least as long as the chosen slice."""
    with target(url, name) as seen:
        oldest, *_, old, _, current = labels(seen)
        assert seen.import_many([b"oldest"], oldest) == 1
        assert seen.add("current")
        items = [b"oldest", b"current", b"other", b"other"]
        assert [seen.import_many(items, old) for _ in range(2)] == [2, 0]
        assert held(seen) == {oldest: 1, old: 2, current: 1}
        assert seen.contains_many(items, within=3) == [True, True, True, True]
        assert seen.contains_many(items, within=2) == [False, True, False, False]


def test_an_older_slice_grows(url: str, name: str) -> None:
    """Only this slice; all its items are counted exactly, and so are those that others add meanwhile."""
    with target(url, name, capacity=300) as seen, target(url, name, capacity=300) as other:
        old = labels(seen)[3]
        other.add_many(f"before {i}" for i in range(250))
        items = [b"import %d" % i for i in range(5000)]
        new = seen.import_many(items, old)
        assert 4990 <= new <= 5000
        assert sum(other.add_many(f"after {i}" for i in range(40))) == 40
        assert held(seen) == {old: new, labels(seen)[-1]: 290}
        parts = {slice.label: slice.parts for slice in seen.info().slices}
        assert parts.pop(old) == 5
        assert set(parts.values()) == {1}
        assert all(other.contains_many(items))
        assert all(other.contains_many(f"before {i}" for i in range(250)))
        # The current one grows as ever.
        assert other.add_many(f"more {i}" for i in range(100)).count(True) >= 99
        assert seen.info().slices[-1].parts == 2
        assert seen.import_many(items, old) == 0
        assert all(other.contains_many(f"more {i}" for i in range(100)))


def test_an_import_follows_the_servers_clock(clockwork: Any, name: str) -> None:
    """The server decides which slices are live; one that leaves the window meanwhile is refused."""
    with target(clockwork.server.url, name, slices=3) as seen:
        assert seen.import_many([b"a"], "20190602") == 1
        assert seen.import_many([b"b"]) == 1
        assert held(seen) == {"20190602": 1, "20190603": 1}
        clockwork.set(datetime(2019, 6, 5, 12, tzinfo=timezone.utc))
        with pytest.raises(ValueError, match="slice: expected one that is live: 20190605"):
            seen.import_many([b"c"], "20190602")
        assert seen.import_many([b"a", b"b"], "20190603") == 1
        assert held(seen) == {"20190603": 2}


def test_nothing_is_lost_or_counted_twice_while_others_add(url: str, name: str) -> None:
    """Two imports and two crawlers add the same items in different orders, over a connection that loses replies."""
    items = [b"item %d" % i for i in range(8_000)]
    with LossyProxy(url, every(15)) as proxy:

        def work(seed: int) -> None:
            mine = items.copy()
            random.Random(seed).shuffle(mine)
            with target(proxy.url, name, capacity=2500, error_rate=1e-9) as seen:
                for start in range(0, len(mine), 500):
                    some = mine[start : start + 500]
                    seen.import_many(some) if seed % 2 else seen.add_many(some)

        with ThreadPoolExecutor(4) as workers:
            list(workers.map(work, range(4)))
        assert proxy.lost
    with target(url, name, capacity=2500, error_rate=1e-9) as seen:
        assert seen.info().items == len(items)
        assert all(seen.contains_many(items))

"""The error rate of slices on a real Redis, for any number of items; and where an item's bits are, which the client alone computes.
(Fixed for ever: test_format.py.)
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import repeat
from statistics import fmean
from typing import Any

import pytest
import redis

from tbloom import FilterFull, TimeBloom
from tbloom.bloom import hasher
from tbloom.bloom.hasher import columns_of, digest
from tbloom.bloom.layout import Layout
from tbloom.bloom.sizing import COLUMNS, block_step, window_rate

check = pytest.mark.check
_ROW = COLUMNS // 8


def _rate_of_part(data: bytes | None, hashes: int) -> float:
    """The exact chance that an item never added is found in a part, by its bytes: in each block, the
    product of its rows' shares of set columns."""
    if data is None:  # no item has come here yet
        return 0.0
    rows = [
        int.from_bytes(data[at : at + _ROW], "big").bit_count() / COLUMNS
        for at in range(0, len(data), _ROW)
    ]
    return fmean(
        math.prod(rows[at : at + hashes])
        for at in range(0, len(rows) - hashes + 1, block_step(hashes))
    )


def _rate_of_window(url: str, seen: TimeBloom) -> float:
    """The exact rate of a window whose slices are all like the current one."""
    config, label, shards = seen.config, seen.info().slices[-1].label, []
    with redis.Redis.from_url(url) as client:
        for shard in range(config.shards):
            layout = client.hget(config.keys.state(shard), "layout") or b""
            parts = Layout(config, layout.decode()).parts(label)
            keys = [config.keys.slice(label, shard, number) for number in range(len(parts))]
            hashes = [part.hashes for part in parts]
            shards.append(window_rate([*map(_rate_of_part, client.mget(keys), hashes)]))
    return window_rate([fmean(shards)] * config.slices)


@pytest.fixture
def url(own_url: str, own: redis.Redis) -> Iterator[str]:
    """A server for this test's keys alone: some are large."""
    yield own_url
    own.flushall()


@pytest.mark.parametrize(
    "error_rate",
    [
        1e-4,
        *(
            pytest.param(rate, marks=check)
            for rate in (0.5, 0.2, 0.1, 0.05, 1e-2, 1e-3, 1e-5, 1e-6)
        ),
    ],
)
@pytest.mark.parametrize(
    ("items", "filters"),
    [
        (10, 20),
        pytest.param(100, 10, marks=check),
        pytest.param(1000, 5, marks=check),
        pytest.param(30_000, 1, marks=check),
    ],
)
@pytest.mark.parametrize(
    "parameters",
    [
        {"grow": False},
        *(
            pytest.param(own, marks=check)
            for own in ({"grow": False, "slices": 1}, {"grow": False, "slices": 168}, {"shards": 3})
        ),
    ],
    ids=["fixed", "one slice", "168 slices", "sharded"],
)
def test_a_full_window_keeps_the_error_rate(
    url: str, error_rate: float, items: int, filters: int, parameters: dict[str, Any]
) -> None:
    """At most 1.1 times the rate; of small filters, on average. Items that are wrongly called seen while it is filled fill it
    too, and are not counted: it gets more, until it has counted its capacity."""
    rates = []
    for number in range(filters):
        with TimeBloom.from_url(
            url,
            f"rate-{number}",
            capacity=items,
            error_rate=error_rate,
            **parameters,
        ) as seen:
            added = 0
            while (missing := items - seen.info().items) > 0:
                seen.add_many(f"{number} {added + i}" for i in range(missing))
                added += missing
            rates.append(_rate_of_window(url, seen))
    print(f"{fmean(rates) / error_rate:.3f} of {error_rate}")
    assert fmean(rates) <= 1.1 * error_rate


@check
@pytest.mark.parametrize(
    "parameters", [{"grow": False}, {}, {"shards": 3}], ids=["fixed", "grown", "sharded"]
)
def test_a_window_that_many_clients_fill_keeps_the_rate(
    url: str, parameters: dict[str, Any]
) -> None:
    """Each client sorts its items by their blocks: a part that becomes full meanwhile has more of them in some blocks."""
    clients, rates = 16, []
    capacity = 20_000 * parameters.get("shards", 1)
    items = capacity if parameters else 3 * capacity

    def fill(client: int, name: str) -> None:
        with TimeBloom.from_url(url, name, capacity=capacity, **parameters) as seen:
            for start in range(0, 2 * items // clients, 2500):
                with suppress(FilterFull):
                    seen.add_many(f"{client} {start + i}" for i in range(2500))

    for number in range(4):
        name = f"rate-{number}"
        with ThreadPoolExecutor(clients) as threads:
            [*threads.map(fill, range(clients), repeat(name))]
        with TimeBloom.from_url(url, name, capacity=capacity, **parameters) as seen:
            assert seen.info().items >= items
            rates.append(_rate_of_window(url, seen))
    print(f"{fmean(rates) / 1e-4:.3f} of 1e-4")
    assert fmean(rates) <= 1.1e-4


@pytest.mark.usefixtures("away_from_midnight")
def test_no_script_computes_where_an_item_is(
    url: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same item in other blocks: its bits are there, and nowhere else."""
    with redis.Redis.from_url(url) as client, TimeBloom(client, name, capacity=1000) as seen:
        seen.add("shows the server's clock")
        [part], key = Layout(seen.config).parts("any"), seen.keys()[-1]

        def bits() -> set[int]:
            data = client.get(key)
            return {i for i in range(8 * len(data)) if data[i // 8] & 128 >> i % 8}

        for verb, block in (seen.add, 0), (seen.commit, 4), (seen.add, 9):
            before, first = bits(), block * block_step(part.hashes) * COLUMNS
            with monkeypatch.context() as patch:
                number = (block << 32) // part.blocks + 1
                patch.setattr(hasher, "mmh3_32_uintdigest", lambda *_, number=number: number)
                assert not seen.contains("an item")
                verb("an item")
                assert seen.contains("an item")
            rows = enumerate(columns_of(digest("an item"), 1)[: part.hashes])
            assert bits() == before | {first + COLUMNS * row + column for row, column in rows}
        assert not seen.contains("an item")

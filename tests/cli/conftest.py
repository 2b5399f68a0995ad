"""What the tests of the command line share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tbloom import TimeBloom


@pytest.fixture
def filled(url: str, name: str) -> Iterator[TimeBloom]:
    """A filter of 250 items in three shards."""
    with TimeBloom.from_url(url, name, capacity=1000, shards=3) as seen:
        seen.add_many(f"item {i}" for i in range(250))
        yield seen

"""``import_many`` beside other clients. (What it answers: test_model.py.)"""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tbloom import ConfigError, TimeBloom
from tests.helpers.proxy import LossyProxy, every


def test_nothing_is_lost_or_counted_twice_while_others_add(url: str, name: str) -> None:
    """Two imports and two crawlers add the same items in different orders, over a connection that loses replies."""
    items = [b"item %d" % i for i in range(8_000)]
    parameters: dict[str, Any] = {"capacity": 2500, "error_rate": 1e-9}
    with LossyProxy(url, every(15)) as proxy:

        def work(seed: int) -> None:
            mine = items.copy()
            random.Random(seed).shuffle(mine)
            with TimeBloom.from_url(proxy.url, name, **parameters) as seen:
                for start in range(0, len(mine), 500):
                    some = mine[start : start + 500]
                    seen.import_many(some) if seed % 2 else seen.add_many(some)

        with ThreadPoolExecutor(4) as workers:
            list(workers.map(work, range(4)))
        assert proxy.lost
    with TimeBloom.from_url(url, name, **parameters) as seen:
        assert seen.info().items == len(items)
        assert all(seen.contains_many(items))
        with pytest.raises(ConfigError, match="label: expected that of a live slice: "):
            seen.import_many(["a"], "19990101")

"""Servers that may drop keys, and that forget all. (Those that refuse to write, or come back with what they had saved:
``tests/simulation``.)
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import redis

from tbloom import TimeBloom
from tests.helpers import servers
from tests.helpers.account import Account, names, pieces
from tests.helpers.killable import Killable
from tests.helpers.making import needed
from tests.helpers.servers import OLDEST
from tests.helpers.stores import BLOOM, DISTINCT, EXACT, STORES, Store


@pytest.mark.parametrize(
    ("store", "parameters"),
    [
        *((store, {}) for store in STORES),
        *((store, store.sharded) for store in (BLOOM, EXACT)),
        (BLOOM, {"capacity": 300}),  # it grows
    ],
    indirect=["store"],
    ids=["bloom", "exact", "distinct", "bloom, shards", "exact, shards", "bloom, grown"],
)
async def test_what_a_server_forgets_is_new_once_more(
    store: Store, opened: Any, tmp_path: Path, name: str, parameters: dict[str, Any]
) -> None:
    """Each of the server's two lives has an exact account, with the same objects: one that adds, and one that only looks."""
    items = names(4500 if store is DISTINCT else 2000)  # 4,097 make a bitmap
    with (
        Killable(needed(OLDEST), tmp_path) as killable,
        store.open(killable.url, name, **parameters) as looking,
    ):
        seen = opened(url=killable.url, **parameters)
        for life in range(2):
            account = Account()
            assert 0 == store.held(looking)
            for piece in pieces(items, 0) * 2:
                await account.offer_async(seen, piece)
            assert len(items) == store.held(looking)
            store.check(account, killable.url, name, **parameters)
            if life == 0:
                killable.kill()
                killable.restart()


POLICY = "the server drops keys once it uses"
DROPPED = "early: what it held is forgotten"


@pytest.fixture
def small() -> Any:
    """A server with 8 MB, which drops keys beyond that."""
    options = ("--maxmemory", "8mb", "--maxmemory-policy", "allkeys-random")
    with servers.local(needed("redis-server"), *options) as client:
        yield client


def test_slices_that_the_server_has_dropped_are_reported(
    small: redis.Redis, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Another program's keys fill the memory until the filter's are dropped, which are among the oldest."""
    with TimeBloom(small, name, capacity=100_000, granularity="1s", slices=600) as seen:
        assert [POLICY in warning for warning in seen.warnings()] == [True]
        seen.add("a")
        [key] = small.keys(f"{{{name}}}:2*")
        number = 0
        while small.exists(key):
            small.set(f"other {number}", "x" * 100_000)
            number += 1
        if small.exists(f"{{{name}}}:state"):
            assert [DROPPED in warning for warning in seen.warnings()] == [False, True]
    assert [] == caplog.records


def test_scrapy_says_so_at_the_start(crawl: Any, small: redis.Redis) -> None:
    port = small.connection_pool.connection_kwargs["port"]
    settings = {"ADDONS": {"tbloom.scrapy.Addon": 500}, "REDIS_URL": f"redis://127.0.0.1:{port}"}
    result = crawl("pages", settings, ["a"])
    assert POLICY in result["log"]
    assert 1 == result["stats"]["tbloom/warnings"]
    assert ["a"] == result["fetched"]

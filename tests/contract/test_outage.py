"""Servers that are away, move, forget all or drop keys: the store finds the new one, and counts exactly in each life of a server.
A caller may also decide by itself meanwhile, and tell the store so. (Refused writes, and what had been saved: ``tests/simulation``.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from freezegun import freeze_time

from tbloom import TimeBloom
from tbloom.engine import sending
from tests.helpers import servers
from tests.helpers.account import Account, names, pieces
from tests.helpers.localredis import OLDEST, LocalRedis, free_port
from tests.helpers.making import needed
from tests.helpers.proxy import Proxy
from tests.helpers.schedulers import UNREACHABLE
from tests.helpers.stores import BLOOM, DISTINCT, EXACT, STORES, Store


@pytest.fixture
def masters(binary: str) -> Iterator[tuple[Proxy, Callable[[], str]]]:
    """An address that leads to a master; and what lets it lead to another one, and returns that one's. The old one goes on as a
    replica, with what it holds."""
    with (
        LocalRedis(binary) as old,
        LocalRedis(binary) as new,
        Proxy(old.url, lambda _: None) as proxy,
    ):

        def move() -> str:
            with redis.Redis.from_url(old.url) as demoted:
                demoted.replicaof("127.0.0.1", free_port())  # nobody is there
            proxy.lead_to(new.url)
            return new.url

        yield proxy, move


async def test_an_address_of_a_new_master_is_asked_anew(
    store: Store, driver: str, masters: Any, name: str
) -> None:
    """The old one refuses to write over the connections that are left (ratelimit#1191)."""
    proxy, move = masters
    seen = store.awaited(proxy.url, name, driver=driver)
    assert await seen.add("before")
    assert await seen.add_many(["one", "more"]) == [True, True]
    new = move()
    assert await seen.add("after")
    assert not await seen.add("after")
    assert store.held(store.open(new, name)) == 1


async def test_readers_find_the_new_master_while_the_old_one_answers(
    store: Store, driver: str, masters: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here connections are renewed fifty times a second, not once a minute."""
    monkeypatch.setattr(sending, "_RENEWAL_SECONDS", 0.02)
    proxy, move = masters
    seen = store.awaited(proxy.url, name, driver=driver)
    assert await seen.add("before")
    assert await seen.contains("before")
    store.open(move(), name).add("after")
    while not await seen.contains("after"):
        pass
    assert not await seen.contains("before")


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
async def test_items_that_a_server_has_lost_are_new_once_more(
    store: Store, driver: str, name: str, parameters: dict[str, Any]
) -> None:
    """Each of the server's two lives has an exact account, with the same objects: one that adds, and one that only looks."""
    items = names(4500 if store is DISTINCT else 2000)  # 4,097 make a bitmap
    with (
        LocalRedis(needed(OLDEST)) as killable,
        store.open(killable.url, name, **parameters) as looking,
    ):
        seen = store.awaited(killable.url, name, driver=driver, **parameters)
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


async def test_a_call_ends_though_the_clock_stands_still(
    store: Store, driver: str, name: str
) -> None:
    """As in users' tests under freezegun, where it would be tried for ever."""
    with freeze_time(real_asyncio=True):
        seen = store.awaited(UNREACHABLE, name, driver=driver, retry_for=0.5)
        with pytest.raises(redis.ConnectionError):
            await seen.add("a")


#: A server with 8 MB, which drops keys beyond that.
DROPS = "--maxmemory", "8mb", "--maxmemory-policy", "allkeys-random"
POLICY = "the server drops keys once it uses"
DROPPED = "early: what it held is forgotten"


def test_slices_that_the_server_has_dropped_are_reported(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Another program's keys fill the memory until the filter's are dropped, which are among the oldest."""
    with (
        servers.local(needed(), *DROPS) as small,
        TimeBloom(small, name, capacity=100_000, granularity="1s", slices=600) as seen,
    ):
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


def test_scrapy_says_so_at_the_start(crawl: Any) -> None:
    with servers.local(needed(), *DROPS) as small:
        url = f"redis://127.0.0.1:{small.connection_pool.connection_kwargs['port']}"
        settings = {"ADDONS": {"tbloom.scrapy.Addon": 500}, "REDIS_URL": url}
        result = crawl("pages", settings, ["a"])
    assert POLICY in result["log"]
    assert (1, ["a"]) == (result["stats"]["tbloom/warnings"], result["fetched"])

"""A caller's own client keeps its settings. Subclasses, tracers, metrics and fakes of it see each of tbloom's calls."""

from __future__ import annotations

from typing import Any

import pytest
import redis
import redis.asyncio
import redis.asyncio.sentinel
import redis.sentinel

from tbloom import Claim, ConfigError, TimeBloom
from tbloom.engine.client import RETRY_FOR_FAILOVER
from tests.engine.test_connections import connections, named
from tests.helpers.making import awaited
from tests.helpers.proxy import Fault, Proxy
from tests.helpers.stores import BLOOM, DISTINCT, EXACT, STORES, Store

#: Enough for several calls at once.
MANY = [f"item {i}" for i in range(1000)]


@pytest.mark.parametrize(
    ("store", "client"),
    [(BLOOM, "FakeAsyncRedis"), pytest.param(EXACT, "FakeRedis", marks=pytest.mark.check)],
    ids=str,
)
async def test_a_filter_works_on_fakeredis(store: Store, client: str) -> None:
    """So crawlers can be tested without a server (docs/recipes.md)."""
    import fakeredis  # noqa: PLC0415 - slow, and only needed here

    opened = store.of_client(getattr(fakeredis, client)(), "news")
    seen = awaited(opened) if client == "FakeRedis" else opened
    assert [True, False] == [await seen.add("a"), await seen.add("a")]
    assert all(await seen.add_many(MANY[:300]))
    assert [True, False] == await seen.contains_many(["a", "b"])
    if store is BLOOM:
        assert await seen.last_seen("a") == await seen.last_seen("item 1")
        assert [Claim.NEW, Claim.BUSY] == [await seen.claim("b"), await seen.claim("b")]
        await seen.commit("b")
        assert await seen.claim("b") is Claim.SEEN
    else:
        assert await seen.discard("a")
    assert (await seen.info()).items == (302 if store is BLOOM else 300)
    await seen.clear()
    assert await seen.add("a")


class Counting(redis.Redis):
    """A subclass that overrides ``execute_command`` and ``pipeline``."""

    seen: list[str]

    def execute_command(self, *args: Any, **options: Any) -> Any:
        self.seen.append(args[0])
        return super().execute_command(*args, **options)

    def pipeline(self, *args: Any, **options: Any) -> Any:
        self.seen.append("pipeline")
        return super().pipeline(*args, **options)


def test_a_subclass_sees_each_call(url: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each verb makes one call for one item, and a pipeline for several shards or batches. (Heartbeats come later.)"""
    monkeypatch.setattr("tbloom.claims.heartbeat._FIRST", 60.0)
    with Counting.from_url(url) as client:
        client.seen = []
        with TimeBloom(client, name, capacity=10_000) as seen:
            verbs = ["add", "add", "claim", "release", "claim", "commit", "contains"]
            for turn in "warm-up", "then":
                for verb in verbs:
                    client.seen.clear()
                    item = "added" if verb == "add" else "worked on"
                    getattr(seen, verb)(f"{turn}: {item}")
                    assert turn == "warm-up" or ["EVALSHA"] == client.seen
            assert all(seen.add_many(MANY))
            client.seen.clear()
            assert not any(seen.add_many(MANY))
            assert {"pipeline"} == {*client.seen}


@pytest.mark.parametrize("kind", [BLOOM, EXACT, DISTINCT], ids=str)
@pytest.mark.parametrize("library", [redis, redis.asyncio])
@pytest.mark.parametrize("is_sentinels", [False, True])
async def test_a_callers_client_keeps_its_settings(
    url: str, name: str, kind: Store, library: Any, *, is_sentinels: bool
) -> None:
    """Also through a Sentinel. tbloom retries after the client's own retries."""
    sentinel = library.sentinel.Sentinel([("127.0.0.1", 9)], socket_timeout=5)
    client = sentinel.master_for("main") if is_sentinels else library.Redis.from_url(url)
    clients = [client, *sentinel.sentinels]
    kept = [{**each.connection_pool.connection_kwargs} for each in clients]
    seen = kind.of_client(client, name)
    assert seen.retry_seconds() == (RETRY_FOR_FAILOVER if is_sentinels else 0)
    if not is_sentinels:
        store = seen if library is redis.asyncio else awaited(seen)
        assert await store.add("a")
        await store.aclose()
        assert client.ping() is True if library is redis else await client.ping()
    assert kept == [each.connection_pool.connection_kwargs for each in clients]
    await client.aclose() if library is redis.asyncio else client.close()


def test_a_client_with_client_side_caching_is_refused() -> None:
    """It may answer by what it has read before another client's change."""
    cache = pytest.importorskip("redis.cache", reason="redis-py 5.0 has no cache")
    with (
        redis.Redis(protocol=3, cache_config=cache.CacheConfig()) as client,
        pytest.raises(
            ConfigError, match="client: expected a client of redis-py for TimeBloom without a cache"
        ),
    ):
        TimeBloom(client, "news")


@pytest.mark.parametrize("store", STORES, ids=str)
@pytest.mark.parametrize("library", [redis, redis.asyncio])
async def test_idle_connections_of_a_callers_client_stay_open(
    store: Store, library: Any, url: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when tbloom would renew its own, and after a lost connection (nestjs-throttler-storage-redis#1214)."""
    monkeypatch.setattr("tbloom.engine.sending._RENEWAL_SECONDS", 1e-9)
    client = redis.Redis.from_url(url)
    faults: list[Fault] = []
    with Proxy(url, lambda _: faults.pop() if faults else None) as proxy:
        callers = library.Redis.from_url(named(proxy.url, name))
        is_async, made = library is redis.asyncio, store.of_client(callers, name, retry_for=60)
        seen = made if is_async else awaited(made)
        await seen.add("a")
        others = [callers.client() for _ in range(3)]
        for each in others:
            assert await each.ping() if is_async else each.ping()
        for each in others:
            await each.aclose() if is_async else each.close()
        before = {*connections(client, name)}
        await seen.add("b")
        assert await seen.contains_many(["a", "b"]) == [True, True]
        assert before == {*connections(client, name)}
        faults.append(Fault.LOSE)
        assert await seen.contains("a")
        assert len(before - {*connections(client, name)}) == 1
        await callers.aclose() if is_async else callers.close()
    client.close()

"""A caller's own client keeps its settings. Subclasses, tracers, metrics and fakes of it see each of tbloom's calls."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import redis
import redis.asyncio
import redis.asyncio.sentinel
import redis.sentinel
from redis.credentials import CredentialProvider

from tbloom import Claim, TimeBloom
from tbloom.engine.client import RETRY_FOR_FAILOVER
from tests.engine.test_connections import connections, named
from tests.helpers.localredis import LocalRedis
from tests.helpers.making import awaited
from tests.helpers.proxy import Fault, Proxy
from tests.helpers.stores import BLOOM, DISTINCT, EXACT, STORES, Store

#: Enough for several calls at once.
MANY = [f"item {i}" for i in range(1000)]


@pytest.mark.parametrize("store", [BLOOM, EXACT], ids=str)
@pytest.mark.parametrize("client", ["FakeRedis", "FakeAsyncRedis"])
async def test_a_filter_works_on_fakeredis(store: Store, client: str) -> None:
    """So crawlers can be tested without a server (docs/recipes.md)."""
    import fakeredis  # noqa: PLC0415 - slow, and only needed here

    opened = store.of_client(getattr(fakeredis, client)(), "news")
    seen = awaited(opened) if client == "FakeRedis" else opened
    assert [True, False] == [await seen.add("a"), await seen.add("a")]
    assert all(await seen.add_many(MANY))
    assert [True, False] == await seen.contains_many(["a", "b"])
    if store is BLOOM:
        assert await seen.last_seen("a") == await seen.last_seen("item 1")
        assert [Claim.NEW, Claim.BUSY] == [await seen.claim("b"), await seen.claim("b")]
        await seen.commit("b")
        assert await seen.claim("b") is Claim.SEEN
    else:
        assert await seen.discard("a")
    assert (await seen.info()).items == (1002 if store is BLOOM else 1000)
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
    monkeypatch.setattr("tbloom.bloom.claims.heartbeat._FIRST", 60.0)
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


_TRACED = """
import asyncio, sys
from opentelemetry import metrics
from opentelemetry.instrumentation.redis import RedisInstrumentor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from redis.observability import MetricGroup, OTelConfig, get_observability_instance
from tbloom import AsyncTimeBloom, TimeBloom
from tests.helpers.making import awaited

url, name = sys.argv[1:]
reader, exporter, provider = InMemoryMetricReader(), InMemorySpanExporter(), TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
RedisInstrumentor().instrument(tracer_provider=provider)

def spans():
    names = [word for span in exporter.get_finished_spans() for word in span.name.split()]
    exporter.clear()
    return names

async def look(seen):
    await seen.add("a")
    exporter.clear()
    assert await seen.add("b")
    assert ["EVALSHA"] == spans()
    assert all(await seen.add_many(range(1000)))
    assert {"EVALSHA"} == {*spans()}
    await seen.aclose()

asyncio.run(look(AsyncTimeBloom.from_url(url, f"{name}-aio", capacity=10_000)))
asyncio.run(look(awaited(TimeBloom.from_url(url, name, capacity=10_000))))

metrics.set_meter_provider(MeterProvider(metric_readers=[reader]))
get_observability_instance().init(OTelConfig(metric_groups=[MetricGroup.COMMAND]))
with TimeBloom.from_url(url, name, capacity=10_000) as seen:
    for item in range(20):
        seen.contains(item)
counted = [
    point.count
    for resource in reader.get_metrics_data().resource_metrics
    for scope in resource.scope_metrics
    for metric in scope.metrics
    for point in metric.data.data_points
    if point.attributes.get("db.operation.name") == "EVALSHA"
]
assert 20 <= sum(counted) <= 21, counted  # the first may find no script
"""


@pytest.mark.check
def test_opentelemetry_and_redis_py_s_own_metrics_see_each_call(url: str, name: str) -> None:
    """The span is named EVALSHA, or lists the commands of the batch's pipeline. (In an environment of its own, because where
    OpenTelemetry is installed, each process that imports redis-py imports that too.)"""
    libraries = ("--with", "opentelemetry-sdk", "--with", "opentelemetry-instrumentation-redis")
    words = (*libraries, "--no-project", "--python", sys.executable, "python", "-c", _TRACED)
    subprocess.run([sys.executable, "-m", "uv", "run", "--quiet", *words, url, name], check=True)


class Rotating(CredentialProvider):
    """Return the password that is valid now."""

    password, asked = "first", 0

    def get_credentials(self) -> tuple[str, str]:
        self.asked += 1
        return "crawler", self.password


def test_each_connection_reads_the_current_password(
    own: redis.Redis, own_server: LocalRedis, name: str
) -> None:
    """Calls still succeed after the password has changed and connections have broken."""
    provider, user = Rotating(), ["ACL", "SETUSER", "crawler", "on", "~*", "+@all", "resetpass"]
    own.execute_command(*user, ">first")
    with redis.Redis(port=own_server.port, credential_provider=provider) as client:
        seen = TimeBloom(client, name, capacity=1000, retry_for=5)
        assert seen.add("a")
        own.execute_command(*user, ">second")
        provider.password = "second"  # noqa: S105 - no secret
        own.client_kill_filter(_type="normal", skipme=True)
        assert [False, True] == [seen.add("a"), seen.add("b")]
        assert provider.asked >= 2


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


def test_importing_tbloom_changes_no_logger_and_no_global_of_redis_py() -> None:
    """A program keeps its own logging."""
    program = """
import logging, redis, redis.asyncio
before = {module.__name__: dict(vars(module)) for module in (redis, redis.client, redis.asyncio)}
levels = {name: logging.getLogger(name).level for name in ("redis", "push_response", "")}
import tbloom
tbloom.TimeBloom, tbloom.AsyncTimeBloom
after = {module.__name__: dict(vars(module)) for module in (redis, redis.client, redis.asyncio)}
same = all(before[name][key] is after[name][key] for name in before for key in before[name])
assert same and levels == {name: logging.getLogger(name).level for name in levels}
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_client_with_client_side_caching_gets_right_answers(
    url: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """(redis-py requires Redis 7.4 for it, but uses nothing that this server lacks.)"""
    cache = pytest.importorskip("redis.cache", reason="redis-py 5.0 has no cache")
    with redis.Redis.from_url(url) as client:
        if "valkey_version" in client.info("server"):
            pytest.skip("redis-py's cache refuses Valkey")
    monkeypatch.setattr(redis.connection.CacheProxyConnection, "MIN_ALLOWED_VERSION", "6.0.0")
    with redis.Redis.from_url(url, protocol=3, cache_config=cache.CacheConfig()) as client:
        client.set(f"{name}:value", "1")
        assert ["1", "1"] == [client.get(f"{name}:value").decode() for _ in range(2)]
        assert client.get_cache().size
        seen, other = TimeBloom(client, name), TimeBloom.from_url(url, name)
        with other:
            assert seen.add("a")
            assert other.add("b")
            assert [False, False] == [seen.add("b"), other.add("a")]
            assert all(seen.add_many(MANY))
            assert not any(other.add_many(MANY))
            other.clear()
            assert [False, True] == ["a" in seen, seen.add("a")]
            assert 1 == seen.info().items


@pytest.mark.parametrize("store", STORES, ids=str)
@pytest.mark.parametrize("library", [redis, redis.asyncio])
async def test_idle_connections_of_a_callers_client_stay_open(
    store: Store, library: Any, url: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when tbloom would renew its own, and after a lost connection."""
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

"""URLs of Valkey, and the clients of valkey-py, redis-py's fork."""

from __future__ import annotations

from typing import Any

import pytest
import redis
import redis.asyncio
import valkey
import valkey.asyncio
import valkey.asyncio.sentinel
import valkey.sentinel

from tbloom import AsyncTimeBloom, ConfigError, TimeBloom
from tbloom.engine.client import RETRY_FOR_FAILOVER
from tbloom.engine.retries import as_redis_error
from tbloom.engine.urls import parse_url
from tests.helpers import servers
from tests.helpers.localredis import LocalRedis
from tests.helpers.making import awaited
from tests.helpers.proxy import Fault, Proxy
from tests.helpers.stores import BLOOM, DISTINCT, EVERY_VERB, EXACT, Store

each_store = pytest.mark.parametrize("store", [BLOOM, EXACT, DISTINCT], ids=str)
each_library = pytest.mark.parametrize("library", [valkey, valkey.asyncio])


def opened(store: Store, client: Any, name: str, **parameters: Any) -> Any:
    """A store by this client, whose verbs are to be awaited."""
    is_sync = isinstance(client, valkey.Valkey | valkey.ValkeyCluster)
    kind = store.sync if is_sync else store.aio
    made = kind(client, *store._names(name), **parameters)
    return awaited(made) if is_sync else made


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("valkey://u:p@h:7/2?db=1", ("redis://u:p@h:7/2?db=1", False)),
        ("valkeys://h", ("rediss://h", False)),
        ("redis://u:p@h/2\r\n", ("redis://u:p@h/2", False)),
        (" redis://u:p@h/2/ ", ("redis://u:p@h/2", False)),
        ("valkey+cluster://valkey:1", ("redis://valkey:1", True)),
        ("valkeys+cluster://h", ("rediss://h", True)),
        ("unix://valkey:p@/valkey.sock", ("unix://valkey:p@/valkey.sock", False)),
    ],
)
def test_a_url_of_valkey_is_one_of_redis(url: str, expected: tuple[str, bool]) -> None:
    """bull#1758: also one with a slash, or white space, at its end."""
    assert expected == parse_url(url)


@each_store
async def test_a_store_is_opened_by_a_url_of_valkey(
    store: Store, driver: str, url: str, name: str
) -> None:
    """redisson#6301"""
    seen = store.awaited(url.replace("redis://", "valkey://"), name, driver=driver)
    assert [True, False] == [await seen.add("a"), await seen.add("a")]
    await seen.aclose()


@each_store
def test_every_verb_by_a_client_of_valkey_py(store: Store, server: LocalRedis, name: str) -> None:
    """limits#262"""
    for protocol, decode in ((2, False), (3, True)):
        options: Any = {"protocol": protocol, "decode_responses": decode}
        with valkey.Valkey.from_url(server.url, **options) as client:
            EVERY_VERB[store](client, f"{name}-{protocol}", 1)


@each_store
def test_every_verb_on_a_cluster(store: Store, cluster: servers.Cluster, name: str) -> None:
    with valkey.ValkeyCluster(host="127.0.0.1", port=cluster.port) as client:
        EVERY_VERB[store](client, name, 6)


@each_store
@each_library
@pytest.mark.parametrize("is_cluster", [False, True])
async def test_calls_are_sent_singly_and_together(
    store: Store, library: Any, cluster: servers.Cluster, url: str, name: str, *, is_cluster: bool
) -> None:
    """And with their texts, where the server has lost the scripts."""
    client = library.Valkey.from_url(url)
    if is_cluster:
        client = library.ValkeyCluster(host="127.0.0.1", port=cluster.port)
    seen, many = opened(store, client, name), [*map(str, range(2000))]
    assert [True, False] == [await seen.add("a"), await seen.add("a")]
    assert all(await seen.add_many(many))
    for master in cluster.masters() if is_cluster else [redis.Redis.from_url(url)]:
        master.script_flush()
        master.close()
    assert not any(await seen.add_many(many))
    assert [True, False] == await seen.contains_many(["a", "b"])
    await seen.aclose()
    await client.aclose() if library is valkey.asyncio else client.close()


@each_store
@each_library
async def test_a_lost_reply_comes_with_the_next_call(
    store: Store, library: Any, url: str, name: str
) -> None:
    """The error is redis-py's. With ``retry_for``, tbloom itself repeats the call."""
    faults = [Fault.LOSE]
    with Proxy(url, lambda _: faults.pop() if faults else None) as proxy:
        client = library.Valkey.from_url(proxy.url)
        seen, lasting = opened(store, client, name), opened(store, client, name, retry_for=60)
        with pytest.raises(redis.ConnectionError):
            await seen.add("a")
        assert [True, False] == [await seen.add("a"), await seen.add("a")]
        for lost in Fault.LOSE, Fault.CUT_REPLY, Fault.CUT_REQUEST:
            faults.append(lost)
            assert await lasting.add(lost.name)
            assert [] == faults
        await client.aclose() if library is valkey.asyncio else client.close()


@each_library
@pytest.mark.parametrize("is_cluster", [False, True])
async def test_a_server_that_is_away_raises_redis_pys_error(library: Any, is_cluster: bool) -> None:
    if is_cluster and library is valkey:
        return  # its constructor connects: the error is valkey-py's
    place = {"host": "127.0.0.1", "port": 1}
    client = library.ValkeyCluster(**place) if is_cluster else library.Valkey(**place)
    seen = opened(BLOOM, client, "news", retry_for=0)
    with pytest.raises(redis.ConnectionError):
        await seen.add("a")
    await client.aclose() if library is valkey.asyncio else client.close()


@each_library
async def test_the_servers_errors_are_redis_pys(
    library: Any, url: str, name: str, client: redis.Redis
) -> None:
    """Singly, and of a batch."""
    client.set(f"{{{name}}}:state", "of another program")
    theirs = library.Valkey.from_url(url)
    seen = opened(BLOOM, theirs, name)
    for verb, items in ((seen.add, "a"), (seen.add_many, [*map(str, range(2000))])):
        with pytest.raises(redis.ResponseError, match=f"another program has written .*{name}"):
            await verb(items)
    await theirs.aclose() if library is valkey.asyncio else theirs.close()


def _all_errors() -> list[type[Exception]]:
    found = [kind for kind in vars(valkey.exceptions).values() if isinstance(kind, type)]
    return [*found, valkey.sentinel.MasterNotFoundError]


@pytest.mark.parametrize("kind", _all_errors())
def test_each_error_of_valkey_py_has_one_of_redis_py(kind: type[Exception]) -> None:
    """Of the same name, or of its base class."""
    error = kind("1 127.0.0.1:2") if kind.__name__ != "LockError" else kind("locked")
    known = as_redis_error(error)
    same = getattr(
        redis.exceptions, kind.__name__.replace("Valkey", "Redis"), redis.ConnectionError
    )
    lost = issubclass(same, redis.exceptions.RedisClusterException)
    assert type(known) is (redis.ConnectionError if lost else same)
    assert str(error) == str(known)


@pytest.mark.parametrize("library", [valkey, valkey.asyncio])
def test_a_client_of_the_other_kind_is_refused(library: Any) -> None:
    kind = AsyncTimeBloom if library is valkey else TimeBloom
    with pytest.raises(ConfigError, match="client: expected a client of redis-py or valkey-py for"):
        kind(library.Valkey(), "news")


@each_library
def test_a_sentinels_client_is_retried_for_longer(library: Any, name: str) -> None:
    sentinel = library.sentinel.Sentinel([("127.0.0.1", 9)])
    kind = TimeBloom if library is valkey else AsyncTimeBloom
    assert RETRY_FOR_FAILOVER == kind(sentinel.master_for("main"), name).retry_seconds()

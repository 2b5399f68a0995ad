"""Clients that no store can use are refused; a client for one server says that it has met a cluster."""

from __future__ import annotations

import itertools
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
import redis
import redis.asyncio
from redis.backoff import NoBackoff
from redis.crc import key_slot

from tbloom import Claim, ConfigError, TBloomError, TimeBloom
from tbloom.engine.retries import is_outage
from tbloom.engine.urls import parse_url
from tests.helpers.commands import tbloom
from tests.helpers.localredis import LocalRedis
from tests.helpers.making import awaited, needed
from tests.helpers.proxy import FOR_TWEMPROXY, Twemproxy
from tests.helpers.servers import Cluster, twemproxy
from tests.helpers.stores import BLOOM, STORES, Store

each_store = pytest.mark.parametrize("store", STORES, ids=str)
each_library = pytest.mark.parametrize("library", [redis, redis.asyncio])


@pytest.mark.parametrize("value", ["", None])
def test_an_empty_url_is_shown_as_it_is(value: Any) -> None:
    """As it comes from an environment variable that is empty, or missing. Any other text may be a password."""
    said = f"^url: expected a URL that starts with redis://.*:6379/0, got {value!r}$"
    with pytest.raises(ConfigError, match=said):
        TimeBloom.from_url(value, "news")


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
    """redisson#6301, bull#1758: also one with a slash, or white space, at its end."""
    assert expected == parse_url(url)


@each_store
@pytest.mark.parametrize("callers", [False, True])
async def test_a_closed_store_leaves_no_connection(
    store: Store, driver: str, url: str, name: str, client: redis.Redis, *, callers: bool
) -> None:
    """The caller's own client goes on; the store takes no more calls either way, also as a context manager."""
    named = f"{url}?client_name={name}"
    seen = store.open(named, name, driver=driver, callers=callers)
    calls = seen if driver == "async" else awaited(seen)
    await calls.add("a")
    await calls.aclose()
    with pytest.raises(TBloomError, match="closed"):
        await calls.add("b")
    if callers:
        reply = seen.client.ping()
        assert (await reply) if driver == "async" else reply
        await (seen.client.aclose() if driver == "async" else awaited(seen.client).aclose())
    while name in {each["name"] for each in client.client_list()}:
        pass  # the server notices it soon


NODE = r"this server is a node of a cluster: use redis\+cluster://"


def of_another_node(name: str) -> str:
    """Return a store's name whose slot is not the first master's."""
    names = (f"{name}-{number}" for number in itertools.count())
    return next(each for each in names if key_slot(each.encode()) > 16_384 / 3)


@each_store
@pytest.mark.parametrize("driver", ["sync", "async"])
@pytest.mark.parametrize("callers", [False, True], ids=["from_url", "a caller's client"])
async def test_a_client_for_one_server_meets_a_cluster(
    store: Store, driver: str, cluster: Cluster, name: str, *, callers: bool
) -> None:
    """Its first call says so, and is not tried again (redis-py#1030, sentry#14818)."""
    url, other = cluster.url.replace("+cluster", ""), of_another_node(name)
    arguments: dict[str, Any] = {"driver": driver, "callers": callers, "retry_for": 3600}
    seen = store.awaited(url, other, **arguments)
    for call in seen.add("a"), seen.contains_many(["a", "b"]), seen.info():
        with pytest.raises(redis.ResponseError, match=NODE) as raised:
            await call
        assert not is_outage(raised.value)


def test_the_command_line_says_so_too(cluster: Cluster, name: str) -> None:
    """Also where the node has some of the stores."""
    url = cluster.url.replace("+cluster", "")
    with TimeBloom.from_url(cluster.url, "a", shards=1) as seen:
        seen.add("a")
    other = of_another_node(name)
    for command in ["list"], ["count", "list"], ["add", "--create", other], ["info", other]:
        ended = tbloom(*command, "--url", url, stdin="a\n")
        assert (2, "") == (ended.returncode, ended.stdout)
        assert "this server is a node of a cluster: use redis+cluster://" in ended.stderr


@each_store
@each_library
async def test_stores_work_behind_a_proxy_without_time_and_info(
    store: Store, library: Any, url: str, name: str
) -> None:
    """What asks the server for its time or memory raises an error (node-redis#704)."""
    once = library.retry.Retry(NoBackoff(), 0)
    with Twemproxy(url) as proxy:
        client = library.Redis(port=proxy.port, retry=once, **FOR_TWEMPROXY)
        made = store.of_client(client, name)
        seen = made if library is redis.asyncio else awaited(made)
        assert [True, False, True] == await seen.add_many(["a", "a", "b"])
        for _ in range(2):
            assert [True, False] == await seen.contains_many(["a", "c"])
            with pytest.raises(redis.ConnectionError, match="closed"):
                await seen.info()
        if store is BLOOM:
            assert Claim.NEW is await seen.claim("c", note="c")
            await seen._send_heartbeat()
            await seen.leave_many(["c"])
            assert ["c"] == [note.text for note in (await seen.take()).notes]
            assert await seen.commit("c")
            for ask in seen.warnings, seen.keys:
                with pytest.raises(redis.ConnectionError, match="closed"):
                    await ask()
        await seen.clear()
        assert await seen.add("a") is True
        await seen.aclose()
        await client.aclose() if library is redis.asyncio else client.close()


def _is_refused(proxy: redis.Redis) -> bool:
    """Whether the proxy says that its server is away."""
    with suppress(redis.ConnectionError):
        try:
            proxy.get("a")
        except redis.ResponseError:
            return True
    return False


@pytest.mark.parametrize("proxy", ["ours", pytest.param("twemproxy", marks=pytest.mark.check)])
@pytest.mark.parametrize("driver", ["sync", "async"])
@each_store
async def test_calls_wait_for_the_server_of_a_proxy(
    store: Store, driver: str, proxy: str, name: str
) -> None:
    """ioredis#573, jedis#473: it answers with an error without a code. Another such error is raised, though INFO fails."""
    with (
        LocalRedis(needed()) as server,
        Twemproxy(server.url) if proxy == "ours" else twemproxy(server) as made,
    ):
        url = made.url if isinstance(made, Twemproxy) else made
        own: dict[str, Any] = {"client_options": FOR_TWEMPROXY, "retry_for": 60}
        seen = store.awaited(url, name, driver=driver, **own)
        assert await seen.add("a")
        server.kill()

        def restart() -> None:
            with redis.Redis.from_url(url, retry=None, **FOR_TWEMPROXY) as direct:
                while not _is_refused(direct):
                    time.sleep(0.01)
            time.sleep(0.1)
            server.restart()

        with ThreadPoolExecutor(1) as thread:
            restarted = thread.submit(restart)
            assert await seen.add("b")
            restarted.result()
        assert not await seen.add("b")
        await seen.aclose()

"""Clients that no store can use, and what is no reply, are refused; a client for one server says that it has met a cluster."""

from __future__ import annotations

import inspect
import itertools
import re
import socket
from typing import Any

import pytest
import redis
import redis.asyncio
from redis.backoff import NoBackoff
from redis.crc import key_slot

from tbloom import Claim, TBloomError, TimeBloom
from tbloom.engine.retries import is_outage
from tests.helpers.commands import tbloom
from tests.helpers.hostile import refused
from tests.helpers.making import awaited
from tests.helpers.proxy import Fault, Proxy
from tests.helpers.servers import Cluster
from tests.helpers.stores import BLOOM, STORES, Store

each_store = pytest.mark.parametrize("store", STORES, ids=str)
each_library = pytest.mark.parametrize("library", [redis, redis.asyncio])


@each_store
@each_library
async def test_a_pipeline_is_no_client(store: Store, library: Any, cluster: Cluster) -> None:
    """It would answer each command with itself, which can be unpacked for ever (redisson#2753)."""
    made = store.sync if library is redis else store.aio
    names = ("one", "news") if store.kind == "distinct" else ("news",)
    for client in library.Redis(), library.RedisCluster(port=cluster.port, host="127.0.0.1"):
        for transaction in {False, isinstance(client, library.Redis)}:
            pipeline = client.pipeline(transaction=transaction)
            assert refused(lambda pipeline=pipeline: made(pipeline, *names)) == "client"
        await client.aclose() if library is redis.asyncio else client.close()


class _AnswersItself(redis.Redis):
    def execute_command(self, *_: Any, **__: Any) -> Any:
        return self


class _AnswersItselfAsync(redis.asyncio.Redis):
    async def execute_command(self, *_: Any, **__: Any) -> Any:
        return self


class _InTransaction(redis.Redis):
    """Answers each script as a connection in the midst of MULTI does."""

    def execute_command(self, *args: Any, **options: Any) -> Any:
        return b"QUEUED" if args[0] == "EVALSHA" else super().execute_command(*args, **options)


@each_store
@pytest.mark.parametrize("client", [_AnswersItself, _AnswersItselfAsync, _InTransaction])
async def test_an_answer_of_the_client_that_is_no_reply_is_refused(
    store: Store, client: Any, url: str, name: str
) -> None:
    made = store.of_client(client.from_url(url), name)
    seen = made if client is _AnswersItselfAsync else awaited(made)
    with pytest.raises(TBloomError, match="the client answered"):
        await seen.add("a")
    with pytest.raises(TBloomError, match="the client answered"):
        await seen.add_many(["a"])


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


class _Twemproxy(Proxy):
    """Closes the connection at a command that twemproxy 0.5 does not know."""

    _UNKNOWN = re.compile(rb"\*\d+\r\n\$\d+\r\n(TIME|INFO|MEMORY|SCRIPT|HELLO|CLIENT|SELECT)\r\n")

    def _send_request(self, server: socket.socket, data: bytes, fault: Fault | None) -> bool:
        return not self._UNKNOWN.search(data) and super()._send_request(server, data, fault)


@each_store
@each_library
async def test_stores_work_behind_a_proxy_without_time_and_info(
    store: Store, library: Any, url: str, name: str
) -> None:
    """What asks the server for its time or memory raises an error (node-redis#704)."""
    known = inspect.signature(library.Redis).parameters
    names = ["driver_info"] if "driver_info" in known else ["lib_name", "lib_version"]
    once = library.retry.Retry(NoBackoff(), 0)
    options = {"protocol": 2, **dict.fromkeys(names), "retry": once}
    with _Twemproxy(url, lambda _: None) as proxy:
        client = library.Redis(port=proxy.port, **options)
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
            for ask in seen.warnings, seen.keys, seen.queue_info:
                with pytest.raises(redis.ConnectionError, match="closed"):
                    await ask()
        await seen.clear()
        assert await seen.add("a") is True
        await seen.aclose()
        await client.aclose() if library is redis.asyncio else client.close()

"""A caller may decide itself while the server does not answer, and tells the store so."""

from __future__ import annotations

import socketserver
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from time import sleep
from typing import Any, NamedTuple

import pytest
import redis
import redis.asyncio
import redis.asyncio.sentinel
import redis.sentinel

from tbloom import AsyncTimeBloom, ConfigError, TimeBloom
from tbloom.engine import connections
from tests.helpers import servers
from tests.helpers.localredis import LocalRedis, free_port
from tests.helpers.making import Awaited, awaited
from tests.helpers.proxy import LossyProxy, Proxy
from tests.helpers.stores import BLOOM, EXACT, Store


@pytest.mark.parametrize("store", [BLOOM, EXACT], ids=str, indirect=True)
async def test_an_item_that_the_caller_assumed_new_is_not_new_again(opened: Any, url: str) -> None:
    with LossyProxy(url, lambda number: number == 3) as proxy:
        seen = opened(url=proxy.url, resend=False)
        await seen.contains("parameters")
        with pytest.raises(redis.ConnectionError):
            await seen.add_many(["a", "b"])
        assume_new = getattr(seen, "_seen", seen).assume_new
        assume_new(["a"])
        assert [False, True] == await seen.add_many(["a", "b"])


async def test_an_address_that_leads_to_a_new_master_is_asked_anew(
    store: Store, driver: str, binary: str, name: str
) -> None:
    """The old one lives on as a replica, which refuses to write over the connections that are left."""
    with (
        LocalRedis(binary) as old,
        LocalRedis(binary) as new,
        redis.Redis.from_url(old.url) as demoted,
        Proxy(old.url, lambda _: None) as proxy,
    ):
        seen = store.awaited(proxy.url, name, driver=driver)
        assert await seen.add("before")
        assert await seen.add_many(["one", "more"]) == [True, True]
        demoted.replicaof("127.0.0.1", new.port)
        proxy.lead_to(new.url)
        assert await seen.add("after")
        assert not await seen.add("after")
        assert store.held(store.open(new.url, name)) == 1


@pytest.mark.parametrize("retry_for", [None, 5])
async def test_a_caller_s_client_leaves_a_server_that_is_no_master_any_more(
    driver: str, name: str, retry_for: float | None
) -> None:
    """With its connections, so that its next call asks the address anew, where it does not retry this one."""
    binary = servers.BINARIES[servers.OLDEST]
    with ExitStack() as stack:
        old, new = (stack.enter_context(LocalRedis(binary)) for _ in range(2))
        proxy = stack.enter_context(Proxy(old.url, lambda _: None))
        if driver == "async":
            client = redis.asyncio.Redis.from_url(proxy.url)
            seen: Any = AsyncTimeBloom(client, name, retry_for=retry_for)
        else:
            seen = Awaited(TimeBloom(redis.Redis.from_url(proxy.url), name, retry_for=retry_for))
        assert await seen.add("before")
        stack.enter_context(redis.Redis.from_url(old.url)).replicaof("127.0.0.1", new.port)
        proxy.lead_to(new.url)
        if retry_for is None:
            with pytest.raises(redis.exceptions.ReadOnlyError):
                await seen.add("after")
        assert await seen.add("after")
        assert not await seen.contains("before")


class Moving(NamedTuple):
    """An address that leads to a master, and then to another one: the old one goes on as a replica, with what it holds."""

    proxy: Proxy
    old: LocalRedis
    new: LocalRedis

    def move(self) -> None:
        with redis.Redis.from_url(self.old.url) as demoted:
            demoted.replicaof("127.0.0.1", free_port())  # nobody is there
        self.proxy.lead_to(self.new.url)


@pytest.fixture
def moving(monkeypatch: pytest.MonkeyPatch) -> Iterator[Moving]:
    """Connections are renewed fifty times a second, not once a minute."""
    monkeypatch.setattr(connections, "_RENEWAL_NS", 20_000_000)
    binary = servers.BINARIES[servers.OLDEST]
    with (
        LocalRedis(binary) as old,
        LocalRedis(binary) as new,
        Proxy(old.url, lambda _: None) as proxy,
    ):
        yield Moving(proxy, old, new)


@pytest.mark.parametrize("own", [False, True], ids=["from_url", "a client of the caller's"])
async def test_who_only_looks_finds_the_new_master_though_the_old_one_answers(
    store: Store, driver: str, moving: Moving, name: str, *, own: bool
) -> None:
    if own:
        library: Any = redis.asyncio if driver == "async" else redis
        made = store.of_client(library.Redis.from_url(moving.proxy.url), name)
    else:
        made = store.open(moving.proxy.url, name, driver=driver)
    seen = made if driver == "async" else awaited(made)
    assert await seen.add("before")
    assert await seen.contains("before")
    moving.move()
    store.open(moving.new.url, name).add("after")
    while not await seen.contains("after"):
        pass
    assert not await seen.contains("before")


@pytest.mark.parametrize("pool", [None, redis.ConnectionPool, redis.BlockingConnectionPool])
def test_of_many_threads_no_connection_to_the_old_master_is_left(
    store: Store, moving: Moving, name: str, pool: Any
) -> None:
    """While all of them go on to look."""
    if pool:
        client = redis.Redis(connection_pool=pool.from_url(moving.proxy.url))
        seen = store.of_client(client, name)
    else:
        seen = store.open(moving.proxy.url, name)
    done, old = threading.Event(), moving.old.url
    seen.add("before")

    def look() -> None:
        while not done.is_set():
            seen.contains("before")

    with ThreadPoolExecutor(8) as threads:
        looking = [threads.submit(look) for _ in range(8)]
        try:
            while moving.proxy.open[old] < 2:
                sleep(0.01)
            moving.move()
            while moving.proxy.open[old] and not any(job.done() for job in looking):
                sleep(0.01)
        finally:
            done.set()
        for job in looking:
            job.result()
    assert not seen.contains("before")


@pytest.mark.parametrize("value", [-1, "5"])
def test_a_bad_argument_is_named(url: str, name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=r"^retry_for: expected"):
        TimeBloom.from_url(url, name, retry_for=value)


@pytest.mark.parametrize("replies", [False, True], ids=["silent", "closes the connection"])
async def test_each_of_two_tries_asks_each_sentinel_once(
    driver: str, name: str, *, replies: bool
) -> None:
    """By ``retry_for``, which the first one outlasts; redis-py would ask each eleven times, twice."""
    asked, library = Counter[int](), redis.asyncio.sentinel if driver == "async" else redis.sentinel

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            asked[self.server.server_address[1]] += 1
            while not replies and self.request.recv(100):
                pass

    with ExitStack() as stack:
        addresses = []
        for _ in range(3):
            server = stack.enter_context(socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler))
            stack.callback(server.shutdown)
            threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
            addresses.append(server.server_address)
        client = library.Sentinel(addresses, socket_timeout=0.1).master_for("main")
        seen = BLOOM.of_client(client, name, retry_for=1e-9)
        with pytest.raises(library.MasterNotFoundError):
            await (seen if driver == "async" else awaited(seen)).add("a")
    assert [2, 2, 2] == [*asked.values()]

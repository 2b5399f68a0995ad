"""Networks that lose all connections without a word, and servers that hang: how many calls find out, and how long the others wait."""

from __future__ import annotations

import asyncio
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis

from tests.helpers.making import Awaited, giving_up_soon
from tests.helpers.proxy import Fault, Proxy
from tests.helpers.stores import BLOOM, DISTINCT, EXACT, Store

#: The connections of the store before the network falls silent.
CONNECTIONS = 8

DRIVERS = pytest.mark.parametrize("driver", ["sync", "async"])
STORES = pytest.mark.parametrize(
    "store",
    [BLOOM, *(pytest.param(store, marks=pytest.mark.check) for store in (EXACT, DISTINCT))],
    ids=str,
)


class Network(Proxy):
    """``lost``: so many connections, the first ones, lead nowhere any more."""

    def __init__(self, url: str) -> None:
        super().__init__(url, lambda _: None)
        self.made = self.lost = 0
        self.swallowed: list[bytes] = []
        #: What is to wait for each other before it is forwarded.
        self.together: threading.Barrier | None = None
        self._of_thread = threading.local()

    def _serve(self, client: socket.socket) -> None:
        self.made += 1
        self._of_thread.number = self.made
        super()._serve(client)

    def _send_request(self, server: socket.socket, data: bytes, fault: Fault | None) -> bool:
        if b"EVALSHA" in data and self.together:
            self.together.wait()
        if self._of_thread.number > self.lost:
            return super()._send_request(server, data, fault)
        self.swallowed.append(data)
        return True


async def _look_together(seen: Any, network: Network) -> None:
    """Make calls at once, each by a connection of its own."""
    network.together = threading.Barrier(CONNECTIONS)
    if isinstance(seen, Awaited):
        with ThreadPoolExecutor(CONNECTIONS) as threads:
            list(threads.map(seen._seen.contains, ["a"] * CONNECTIONS))
    else:
        await asyncio.gather(*(seen.contains_many(["a"]) for _ in range(CONNECTIONS)))
    network.together = None


@DRIVERS
@STORES
async def test_the_second_try_after_silence_takes_a_new_connection(
    store: Store, driver: str, url: str, name: str
) -> None:
    """All kept connections are lost (lettuce#2082, redis-py#722); one call finds out. ``retry_for`` is over after its first try."""
    with Network(url) as network:
        patient = f"{network.url}?socket_timeout=600"
        seen = store.awaited(patient, name, driver=driver, retry_for=1e-9)
        await seen.add("a")
        await _look_together(seen, network)
        assert network.made >= CONNECTIONS
        network.lost = network.made
        with giving_up_soon(seen):
            assert await seen.contains("a")
        await _look_together(seen, network)
        assert 1 == len(network.swallowed)
        await seen.aclose()


async def _ask(seen: Any, number: int) -> list[Any]:
    """Ask about items at once, each in a thread or a task of its own; return the answers and errors."""
    items = [f"item {i}" for i in range(number)]
    if not isinstance(seen, Awaited):
        calls = [
            seen.contains(item) if n % 2 else seen.contains_many([item])
            for n, item in enumerate(items)
        ]
        return await asyncio.gather(*calls, return_exceptions=True)
    with ThreadPoolExecutor(number) as threads:
        calls = [threads.submit(seen._seen.contains, item) for item in items]
        return await asyncio.gather(*map(asyncio.wrap_future, calls), return_exceptions=True)


@DRIVERS
@STORES
async def test_of_many_calls_few_try_a_server_that_hangs(
    store: Store, driver: str, url: str, name: str
) -> None:
    """The others end with them: their wait for one of two connections counts. One by one, 60 would take a minute (scredis#39)."""
    with Network(url) as network:
        hangs = f"{network.url}?max_connections=2&socket_timeout=0.5"
        seen = store.awaited(hangs, name, driver=driver, retry_for=1)
        await seen.add("a")
        network.lost = 1_000_000
        answers = await _ask(seen, 60)
        assert {redis.TimeoutError} == {*map(type, answers)}
        assert 2 <= len(network.swallowed) <= 20
        network.lost = 0
        assert await seen.contains("a")
        await seen.aclose()


@DRIVERS
async def test_all_calls_are_answered_once_a_server_is_back(
    driver: str, url: str, name: str
) -> None:
    """Though they have waited for a connection while it hung."""
    with Network(url) as network:
        hangs = f"{network.url}?max_connections=2&socket_timeout=0.2"
        seen = BLOOM.awaited(hangs, name, driver=driver, retry_for=60)
        await seen.add("a")
        network.lost = 1_000_000
        asking = asyncio.create_task(_ask(seen, 200))
        while len(network.swallowed) < 3:  # noqa: ASYNC110 - a thread tells
            await asyncio.sleep(0.01)
        network.lost = 0
        answers = await asking
        assert [False] * 200 == [
            answer[0] if isinstance(answer, list) else answer for answer in answers
        ]
        await seen.aclose()

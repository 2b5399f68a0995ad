"""Networks that lose all connections without a word: the second try of a call takes a new one."""

from __future__ import annotations

import asyncio
import selectors
import socketserver
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.helpers.making import Awaited, giving_up_soon
from tests.helpers.stores import BLOOM, DISTINCT, EXACT, Store

#: The connections of the store before the network falls silent.
CONNECTIONS = 8


class Network(socketserver.ThreadingTCPServer):
    """Forwards to a server. ``lost``: so many connections, the first ones, lead nowhere any more."""

    daemon_threads, request_queue_size = True, 64

    def __init__(self, url: str) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        target = urlsplit(url)
        self.target = (target.hostname, target.port)
        self.url = f"redis://127.0.0.1:{self.server_address[1]}/0?socket_timeout=600"
        self.made = self.lost = 0
        self.swallowed: list[bytes] = []
        #: What is to wait for each other before it is forwarded.
        self.together: threading.Barrier | None = None


class _Connection(socketserver.BaseRequestHandler):
    server: Network

    def handle(self) -> None:
        self.server.made += 1
        number = self.server.made
        with (
            suppress(OSError),
            closing(socketserver.socket.create_connection(self.server.target)) as far,
            selectors.DefaultSelector() as ready,
        ):
            ends = {self.request: far, far: self.request}
            for end in ends:
                ready.register(end, selectors.EVENT_READ)
            while True:
                for key, _ in ready.select():
                    data = key.fileobj.recv(1 << 16)  # type: ignore[union-attr]
                    if not data:
                        return
                    if b"EVALSHA" in data and self.server.together:
                        self.server.together.wait()
                    if number > self.server.lost:
                        ends[key.fileobj].sendall(data)  # type: ignore[index]
                    else:
                        self.server.swallowed.append(data)


@pytest.fixture
def network(url: str) -> Iterator[Network]:
    with Network(url) as network:
        threading.Thread(target=network.serve_forever, args=(0.05,), daemon=True).start()
        yield network
        network.shutdown()


async def _look_together(seen: Any, network: Network) -> None:
    """Make calls at once, each by a connection of its own."""
    network.together = threading.Barrier(CONNECTIONS)
    if isinstance(seen, Awaited):
        with ThreadPoolExecutor(CONNECTIONS) as threads:
            list(threads.map(seen._seen.contains, ["a"] * CONNECTIONS))
    else:
        await asyncio.gather(*(seen.contains_many(["a"]) for _ in range(CONNECTIONS)))
    network.together = None


@pytest.mark.parametrize("driver", ["sync", "async"])
@pytest.mark.parametrize(
    "store",
    [BLOOM, *(pytest.param(store, marks=pytest.mark.check) for store in (EXACT, DISTINCT))],
    ids=str,
)
async def test_the_second_try_after_silence_takes_a_new_connection(
    store: Store, driver: str, network: Network, name: str
) -> None:
    """All kept connections are lost (lettuce#2082, redis-py#722); one call finds out. ``retry_for`` is over after its first try."""
    seen = store.awaited(network.url, name, driver=driver, retry_for=1e-9)
    await seen.add("a")
    await _look_together(seen, network)
    assert network.made >= CONNECTIONS
    network.lost = network.made
    with giving_up_soon(seen):
        assert await seen.contains("a")
    await _look_together(seen, network)
    assert 1 == len(network.swallowed)
    await seen.aclose()

"""A TCP proxy between client and Redis, with the faults of a network."""

from __future__ import annotations

import inspect
import re
import selectors
import socket
import socketserver
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from functools import partial
from typing import Any, Self
from urllib.parse import urlsplit

import redis


class Fault(Enum):
    """What may happen to the script calls that arrive together, mostly one; of a batch, some."""

    LOSE = "the reply is lost"
    CUT_REPLY = "the connection is cut in the middle of the reply"
    CUT_REQUEST = "the connection is cut in the middle of the request"
    LATE_REPLY = "the reply comes late"
    LATE_REQUEST = "the request comes late"
    LATE_COPY = "the request comes once more, late"


class Proxy:
    """Forwards everything, but what has script calls in it meets the fault that ``choose`` picks, by number.

    ``late``: by how many seconds that is late which is late, or what it waits for. Where a connection is cut or a reply
    lost, the client sees its connection end; the server has executed all calls that reached it whole.
    """

    def __init__(
        self,
        url: str,
        choose: Callable[[int], Fault | None],
        *,
        late: float | threading.Event = 0.5,
    ) -> None:
        self.lead_to(url)
        self._choose = choose
        self._is_time = (
            late.wait if isinstance(late, threading.Event) else partial(time.sleep, late)
        )
        self._lock = threading.Lock()
        #: How many were made; those that arrive together are one.
        self.calls = 0
        #: How often each fault has happened.
        self.struck: Counter[Fault] = Counter()

    def __enter__(self) -> Self:
        proxy = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                with suppress(OSError, redis.ConnectionError):  # either end may be gone
                    proxy._serve(self.request)

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True
            request_queue_size = 128

        self._server = Server(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        self.url = f"redis://127.0.0.1:{self.port}/0"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def lead_to(self, url: str) -> None:
        """Forwards the connections from now on to another server."""
        target = urlsplit(url)
        self._target_url = url
        self._target = (target.hostname or "127.0.0.1", target.port or 6379)

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _serve(self, client: socket.socket) -> None:
        with socket.create_connection(self._target) as server, selectors.DefaultSelector() as ready:
            ready.register(client, selectors.EVENT_READ)
            ready.register(server, selectors.EVENT_READ)
            fault: Fault | None = None
            while True:
                for key, _ in ready.select():
                    data = key.fileobj.recv(1 << 20)  # type: ignore[union-attr]
                    if not data:
                        return
                    if key.fileobj is client:
                        fault = fault or self._pick(data)
                        going_on = self._send_request(server, data, fault)
                    else:
                        going_on = self._send_reply(client, data, fault)
                        fault = None
                    if not going_on:
                        return

    def _pick(self, data: bytes) -> Fault | None:
        if b"EVALSHA" not in data:
            return None
        with self._lock:
            self.calls += 1
            fault = self._choose(self.calls)
            if fault:
                self.struck[fault] += 1
            return fault

    def _send_request(self, server: socket.socket, data: bytes, fault: Fault | None) -> bool:
        """False: the connection is to be ended."""
        half = len(data) // 2
        if fault is Fault.CUT_REQUEST:
            server.sendall(data[:half])
            server.shutdown(socket.SHUT_WR)
            while server.recv(1 << 20):  # until the server has executed what it can
                pass
            return False
        if fault is Fault.LATE_REQUEST:
            self._is_time()
        elif fault is Fault.LATE_COPY:
            # To the same server, though the proxy leads to another one by then.
            copy = server.getpeername(), data
            threading.Thread(target=self._send_copy, args=copy).start()
        server.sendall(data)
        return True

    def _send_copy(self, address: tuple[str, int], data: bytes) -> None:
        self._is_time()
        with suppress(OSError), socket.create_connection(address) as server:
            server.sendall(data)
            server.shutdown(socket.SHUT_WR)
            while server.recv(1 << 20):  # until the server has executed it
                pass

    def _send_reply(self, client: socket.socket, data: bytes, fault: Fault | None) -> bool:
        """False: the connection is to be ended."""
        if fault in (Fault.LOSE, Fault.CUT_REPLY):
            client.sendall(data[: len(data) // 2] if fault is Fault.CUT_REPLY else b"")
            return False
        if fault is Fault.LATE_REPLY:
            self._is_time()
        client.sendall(data)
        return True


_OF_REDIS_PY = inspect.signature(redis.Redis).parameters
#: What redis-py needs to connect to twemproxy.
FOR_TWEMPROXY: dict[str, Any] = {
    "protocol": 2,
    **dict.fromkeys(
        ["driver_info"] if "driver_info" in _OF_REDIS_PY else ["lib_name", "lib_version"]
    ),
}


class Twemproxy(Proxy):
    """Closes the connection at a command that twemproxy 0.5 does not know, and answers calls while its server is away."""

    _UNKNOWN = re.compile(rb"\*\d+\r\n\$\d+\r\n(TIME|INFO|MEMORY|SCRIPT|HELLO|CLIENT|SELECT)\r\n")

    def __init__(self, url: str) -> None:
        super().__init__(url, lambda _: None)

    def _serve(self, client: socket.socket) -> None:
        try:
            super()._serve(client)
        except ConnectionRefusedError:
            if (data := client.recv(1 << 20)) and not self._UNKNOWN.search(data):
                client.sendall(b"-ERR Connection refused\r\n")
                self._serve(client)

    def _send_request(self, server: socket.socket, data: bytes, fault: Fault | None) -> bool:
        return not self._UNKNOWN.search(data) and super()._send_request(server, data, fault)

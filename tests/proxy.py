"""A TCP proxy between client and Redis that loses replies."""

from __future__ import annotations

import selectors
import socket
import socketserver
import threading
from collections.abc import Callable
from urllib.parse import urlsplit

from typing_extensions import Self


def every(n: int) -> Callable[[int], bool]:
    """Picks every n-th call."""
    return lambda number: number % n == 0


class LossyProxy:
    """Forwards everything, but the script calls that ``lose`` picks, by number, lose their reply.

    The server has executed the call by then; the client sees its connection end.
    """

    def __init__(self, url: str, lose: Callable[[int], bool]) -> None:
        target = urlsplit(url)
        self._target = (target.hostname or "127.0.0.1", target.port or 6379)
        self._lose = lose
        self._lock = threading.Lock()
        self._calls = 0
        self.lost = 0

    def __enter__(self) -> Self:
        proxy = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                proxy._serve(self.request)

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self.url = f"redis://127.0.0.1:{self.port}/0"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _is_to_lose(self, data: bytes) -> bool:
        with self._lock:
            self._calls += b"EVALSHA" in data
            return b"EVALSHA" in data and self._lose(self._calls)

    def _serve(self, client: socket.socket) -> None:
        with socket.create_connection(self._target) as server, selectors.DefaultSelector() as ready:
            ready.register(client, selectors.EVENT_READ, server)
            ready.register(server, selectors.EVENT_READ, client)
            lose = False
            while True:
                for key, _ in ready.select():
                    data = key.fileobj.recv(1 << 20)  # type: ignore[union-attr]
                    if not data:
                        return
                    if key.fileobj is client:
                        lose = lose or self._is_to_lose(data)
                    elif lose:
                        with self._lock:
                            self.lost += 1
                        return
                    key.data.sendall(data)

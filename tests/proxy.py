"""A TCP proxy between client and Redis that loses replies."""

from __future__ import annotations

import selectors
import socket
import socketserver
import threading
from types import TracebackType
from urllib.parse import urlsplit

from typing_extensions import Self


class LossyProxy:
    """Forwards everything, but every n-th message that holds ``needle`` loses its reply.

    The server has executed the call by then; the client sees its connection end.
    """

    def __init__(self, url: str, every: int, needle: bytes = b"EVALSHA") -> None:
        target = urlsplit(url)
        self._target = (target.hostname or "127.0.0.1", target.port or 6379)
        self._every, self._needle = every, needle
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _is_to_lose(self, data: bytes) -> bool:
        with self._lock:
            self._calls += self._needle in data
            return self._needle in data and self._calls % self._every == 0

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

"""A longer line between a client and Redis, in its own process: ``python bench/delay.py PORT SECONDS``.

Listens on a free loopback port, which it prints; whatever arrives is sent on SECONDS later, in either
direction. Ends when its standard input does, so that it never outlives its parent.
"""

from __future__ import annotations

import queue
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress


def _forward(source: socket.socket, target: socket.socket, seconds: float) -> None:
    """One thread receives, another one sends in time: data that arrives meanwhile must not wait twice."""
    due: queue.SimpleQueue[tuple[float, bytes]] = queue.SimpleQueue()

    def receive() -> None:
        data = b"?"
        while data:
            try:
                data = source.recv(1 << 20)
            except OSError:
                data = b""
            due.put((time.perf_counter() + seconds, data))

    def send() -> None:
        with suppress(OSError):  # the other end is gone
            data = b"?"
            while data:
                when, data = due.get()
                # (Not asyncio, whose timers wait for whole milliseconds.)
                time.sleep(max(0.0, when - time.perf_counter()))
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)

    for work in (receive, send):
        threading.Thread(target=work, daemon=True).start()


def main() -> None:
    """Runs the proxy."""
    port, seconds = int(sys.argv[1]), float(sys.argv[2])
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    threading.Thread(target=_accept, args=(listener, port, seconds), daemon=True).start()
    sys.stdin.read()


def _accept(listener: socket.socket, port: int, seconds: float) -> None:
    while True:
        client, _ = listener.accept()
        server = socket.create_connection(("127.0.0.1", port))
        for end in (client, server):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _forward(client, server, seconds)
        _forward(server, client, seconds)


@contextmanager
def delayed(port: int, seconds: float) -> Iterator[str]:
    """The URL of the Redis on this port, with a delay (s) each way."""
    with child(__file__, str(port), str(seconds)) as proxy:
        yield f"redis://127.0.0.1:{proxy}/0"


@contextmanager
def child(*words: str) -> Iterator[int]:
    """The port of a Python program, which prints it, and ends when its standard input does."""
    command = [sys.executable, *words]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        try:
            yield int(process.stdout.readline())
        finally:
            process.communicate(timeout=10)


if __name__ == "__main__":
    main()

"""A proxy in front of Redis that adds a delay: ``python bench/delay.py PORT SECONDS``.

It listens on a free loopback port, which it prints, and forwards what arrives SECONDS later, in both directions. It ends
when its standard input does, so that it never outlives its parent.
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
    """Receive in one thread and send in another, so that data that arrives during a delay does not wait twice."""
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
                # asyncio would wait for whole milliseconds.
                time.sleep(max(0.0, when - time.perf_counter()))
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)

    for work in (receive, send):
        threading.Thread(target=work, daemon=True).start()


def main() -> None:
    """Run the proxy."""
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
    """Yield a URL of the Redis on this port with a delay (s) each way."""
    with child(__file__, str(port), str(seconds)) as proxy:
        yield f"redis://127.0.0.1:{proxy}/0"


@contextmanager
def child(*words: str) -> Iterator[int]:
    """Run a Python program that prints its port and ends when its standard input does. Yield the port."""
    command = [sys.executable, *words]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        try:
            yield int(process.stdout.readline())
        finally:
            process.communicate(timeout=10)


if __name__ == "__main__":
    main()

"""A server that dies and comes back; harm that is done again and again."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

from tests.helpers.localredis import LocalRedis
from tests.helpers.servers import cluster_port

if TYPE_CHECKING:
    from typing_extensions import Self


class Killable:
    """A server that can be killed and started again on the same port, with what it has written to ``folder``."""

    def __init__(self, binary: str, folder: Path, *options: str) -> None:
        # Not a port that an outgoing connection may take while the server is down.
        port = cluster_port()
        self._server = LocalRedis(binary, "--dir", str(folder), *options, port=port)

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop()

    @property
    def url(self) -> str:
        """Where clients find it."""
        return self._server.url

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The running server."""
        assert self._server.process is not None
        return self._server.process

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.wait()

    def restart(self) -> None:
        """Starts it again; it has loaded what was written."""
        self._server.stop()
        self._server.start()


@contextmanager
def again_and_again(do: Callable[[], Any]) -> Iterator[None]:
    """Does it in a thread of its own, until the context ends."""
    done = Event()

    def repeat() -> None:
        while not done.is_set():
            do()

    with ThreadPoolExecutor(1) as thread:
        repeating = thread.submit(repeat)
        try:
            yield
        finally:
            done.set()
        repeating.result()

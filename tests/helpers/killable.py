"""A server that dies and comes back; harm that is done again and again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any

from tests.helpers.localredis import LocalRedis


class Killable(LocalRedis):
    """A server that can be killed and started again on the same port, with what it has written to ``folder``."""

    def __init__(self, binary: str, folder: Path, *options: str, **more: Any) -> None:
        super().__init__(binary, "--dir", str(folder), *options, **more)

    def kill(self) -> None:
        """SIGKILL."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def restart(self) -> None:
        """Starts it again; it has loaded what was written."""
        self.stop()
        self.start()


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

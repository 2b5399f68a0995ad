"""Threads of which one runs at a time: the player's own, or that of a caller, which it has let go on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.network import Link

#: On a busy machine a thread may wait long for its turn.
_STUCK_SECONDS = 300
_here = threading.local()


class Abandoned(BaseException):
    """The schedule has ended: what still waits is unwound."""


class Worker:
    """A thread that runs while the player waits for it, and waits while the player moves."""

    def __init__(self) -> None:
        self._go, self._back = threading.Lock(), threading.Lock()
        self._go.acquire()
        self._back.acquire()
        self._function: Callable[[], None] | None = None
        self.abandons = False
        threading.Thread(target=self._work, daemon=True).start()

    @property
    def is_busy(self) -> bool:
        """Whether what it was given to do has not ended."""
        return self._function is not None

    def begin(self, function: Callable[[], None]) -> None:
        """Runs the function until it waits, or ends."""
        self._function, self.abandons = function, False
        self.resume()

    def resume(self) -> None:
        """Goes on until it waits, or ends."""
        self._go.release()
        assert self._back.acquire(timeout=_STUCK_SECONDS), "a caller hangs"

    def park(self, link: Link) -> None:
        """Called in the thread: waits for the player."""
        if self.abandons:
            raise Abandoned
        link.is_read, link.worker = True, self
        self._back.release()
        self._go.acquire()
        link.is_read, link.worker = False, None
        if self.abandons:
            raise Abandoned

    @staticmethod
    def running() -> Worker | None:
        """The worker whose thread this is; None in the player's own."""
        return getattr(_here, "worker", None)

    def _work(self) -> None:
        _here.worker = self
        while True:
            self._go.acquire()
            function = self._function
            assert function is not None
            try:
                function()
            finally:
                self._function = None
                self._back.release()

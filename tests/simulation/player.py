"""The player: holds all calls of all callers in its hand, and decides move by move what happens next.

The moves, by the names under which schedules have them ("A" is a caller, or a call of its batch of tasks):

- ``A asks``, ``A asks again`` (after an error), ``A goes on`` (without asking again)
- ``A is answered``: the server executes its next request, and the reply arrives
- ``A: executed, the reply is slow``: the reply arrives by a later move
- ``A: cut off, ...``: the connection breaks; before that, some of its requests are executed, and the others are lost, or come
  late; then the driver sends the call again, or raises an error
- ``A: interrupted, ...``: the caller gives up by a signal, or its task is cancelled
- ``A: refused, OOM, ...``: the server executes the request while its memory is full; or READONLY, NOREPLICAS, LOADING, BUSY,
  MOVED. What has nothing to write is answered by a server that refuses to write.
- ``a late request arrives``
- what else happens, each once: ``EVENTS`` in ``faults``
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.simulation.network import Network
from tests.simulation.server import Server


class Player:
    """What is kept from schedule to schedule: the server, threads and clients."""

    def __init__(self, server: Server) -> None:
        self.server = server
        #: Of the present schedule.
        self.network: Network
        self.all: list[Worker] = []
        self.workers: list[Worker] = []
        self.clients: dict[tuple[str, int], Any] = {}
        self.loop = asyncio.new_event_loop()
        #: How many schedules were played.
        self.played = 0
        #: How many of them were not judged, because too much was possible in them.
        self.undecided = 0

    def worker(self) -> Worker:
        """A thread that has nothing to do."""
        if not self.workers:
            made = Worker()
            self.all.append(made)
            self.workers.append(made)
        return self.workers.pop()

    def close(self) -> None:
        """Closes the clients."""
        self.loop.close()


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
        link.worker = self
        self._back.release()
        self._go.acquire()
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

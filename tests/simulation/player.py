"""The player: holds all calls of all callers in its hand, and decides move by move what happens next.

The moves, by the names under which schedules have them ("A" is a caller, or a call of its batch of tasks):

- ``A asks``, ``A asks again`` (after an error), ``A goes on`` (without asking again)
- ``A is answered``: the server executes its next request, and the reply arrives
- ``A: executed, the reply is slow``: the reply arrives by a later move
- ``A: cut off, ...``: the connection breaks; before that, some of its requests are executed, and the others are lost, or come
  late; then the driver sends the call again, or raises an error
- ``A: interrupted, ...``: the caller gives up by a signal, or its task is cancelled
- ``A: refused, OOM, ...``: the server executes the request while its memory is full; or READONLY, LOADING, BUSY
- ``a late request arrives``
- what else happens, each once: ``EVENTS`` in ``events``
"""

from __future__ import annotations

import asyncio
from typing import Any

from tests.simulation.connections import Place
from tests.simulation.server import Server
from tests.simulation.workers import Worker


class Player:
    """What is kept from schedule to schedule: the server, threads and clients."""

    def __init__(self, server: Server) -> None:
        self.server, self.place = server, Place()
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

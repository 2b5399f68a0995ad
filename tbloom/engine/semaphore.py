"""A fair semaphore for threads: asyncio has one, ``threading`` has none."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from threading import Lock
from typing import Any

from tbloom.engine.sending import no_turn

#: How often a waiting thread looks for itself (s): an interrupt (Ctrl-C) may have kept another one from waking it.
_LOOK_EVERY = 1.0
#: A call whose time is over looks once more after this (s), for answers that have come while the whole process was frozen.
LAST_LOOK = 0.1


class FairSemaphore:
    """A semaphore that at most so many threads hold at once. The others wait for it in a queue, first come, first served.

    A thread is named by its ident. No lock is needed: a set or a dict changes in one step, and a thread enters the holders
    before it counts them. So the garbage collector or a signal handler may make a call at any moment.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        #: The threads that hold it.
        self.holders: set[int] = set()
        #: The threads that wait, in order, each with a lock that is released when it may be its turn.
        self.waiting: dict[int, Any] = {}

    def acquire(self, thread: int, left: Callable[[float], float], since: float) -> None:
        """Hold the semaphore, or wait for it. A signal handler that interrupts a waiting thread does not wait.

        ``left`` returns how long (s) a call may go on waiting that has waited ``since`` then. Raise redis-py's TimeoutError after
        that.
        """
        self.holders.add(thread)
        # The first in the queue leaves it only once it is a holder. So the queue is looked at before the holders are counted.
        if self.waiting or len(self.holders) > self._most:
            self._wait(thread, left, since)

    def _wait(self, thread: int, left: Callable[[float], float], since: float) -> None:
        self.holders.discard(thread)
        if thread in self.waiting:  # a signal handler calls while its thread waits here
            return
        woken, is_over = Lock(), False
        woken.acquire()
        try:
            self.waiting[thread] = woken
            self._wake_next()
            while [*self.waiting][0] != thread or len(self.holders) >= self._most:  # noqa: RUF015 - one step
                more = left(since)
                if is_over and more <= 0:
                    raise no_turn()
                is_over = more <= 0
                woken.acquire(timeout=min(_LOOK_EVERY, max(more, LAST_LOOK)))
            self.holders.add(thread)
        finally:
            self.waiting.pop(thread, None)
            self._wake_next()

    def release(self, thread: int) -> None:
        """Let another thread hold the semaphore, if this one does."""
        self.holders.discard(thread)
        if self.waiting:
            self._wake_next()

    def _wake_next(self) -> None:
        """Wake the thread that is first in the queue."""
        for woken in [*self.waiting.values()][:1]:
            with suppress(RuntimeError):  # it is awake
                woken.release()

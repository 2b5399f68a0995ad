"""Places: at most so many calls of a client run at once. Other threads wait in line, first come, first served."""

from __future__ import annotations

from contextlib import suppress
from threading import Lock
from time import monotonic
from typing import Any

#: How often a waiting thread looks for itself (s): an interrupt (Ctrl-C) may have kept another one from waking it.
_LOOK_EVERY = 1.0


class Places:
    """The places of one client's calls, and the threads that wait for one. A thread is named by its ident.

    No lock is needed: a set or a dict changes in one step, and a thread takes its place before it counts whether that was free.
    So the garbage collector or a signal handler may make a call at any moment.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        #: The threads that have a place. To give it back, call ``give_back``, or do its steps where an interrupt must not come
        #: before the first one.
        self.taken: set[int] = set()
        #: The threads that wait, in order, each with a lock that is released when it may be its turn.
        self.line: dict[int, Any] = {}

    def take(self, thread: int, until: float) -> bool:
        """Take a place for the thread, or wait for one. Return False if none was free until then (monotonic).

        A signal handler that interrupts a waiting thread may call at once, beyond the limit.
        """
        self.taken.add(thread)
        # The first in line leaves it only once it has its place. So the line is looked at before the places are counted.
        return (not self.line and len(self.taken) <= self._most) or self._wait(thread, until)

    def _wait(self, thread: int, until: float) -> bool:
        self.taken.discard(thread)
        if thread in self.line:  # a signal handler calls while its thread waits here
            return True
        woken = Lock()
        woken.acquire()
        try:
            self.line[thread] = woken
            self.wake_next()
            while [*self.line][0] != thread or len(self.taken) >= self._most:  # noqa: RUF015 - one step
                left = until - monotonic()
                if left <= 0:
                    return False
                woken.acquire(timeout=min(left, _LOOK_EVERY))
            self.taken.add(thread)
            return True
        finally:
            self.line.pop(thread, None)
            self.wake_next()

    def give_back(self, thread: int) -> None:
        """Give the thread's place back, if it has one."""
        self.taken.discard(thread)
        if self.line:
            self.wake_next()

    def wake_next(self) -> None:
        """Wake the thread that is first in line."""
        for woken in [*self.line.values()][:1]:
            with suppress(RuntimeError):  # it is awake
                woken.release()

"""Places: at most so many calls of a client run at once, each in a place. Threads wait for one, first come, first served."""

from __future__ import annotations

import sys
from collections import deque
from contextlib import suppress
from threading import Lock, RLock, get_ident
from types import FrameType
from typing import Any, NamedTuple

#: How long a waiting thread waits before it looks for places that an interrupt has lost (s).
_LOOKS_EVERY = 1.0


class _Waiting(NamedTuple):
    """A call that waits: its thread, its frame, and the lock that is released once it has a place."""

    thread: int
    frame: FrameType
    turn: Any


class Places:
    """The places of the calls of all threads.

    A call holds a place while its frame is on the stack of its thread. So a place that an interrupt (Ctrl-C) has kept from being
    given back can be found.
    """

    def __init__(self, most: int) -> None:
        self._most = self._limit = most
        #: The frame of the call that has a place, by its thread.
        self._taken: dict[int, FrameType] = {}
        self._waiting = deque[_Waiting]()
        self._lock = RLock()  # a signal handler may make a call while its thread is in here

    def take(self) -> None:
        """Take a place for the caller, or wait for one. A signal handler's call within another call needs none."""
        thread, frame = get_ident(), sys._getframe(1)  # noqa: SLF001 - there is no other way to it
        with self._lock:
            if outer := self._taken.get(thread):
                if _is_on(frame, outer):
                    return
                del self._taken[thread]  # an interrupt has kept it from being given back
            if len(self._taken) < self._limit and not self._waiting:
                self._taken[thread] = frame
                return
            waiting = _Waiting(thread, frame, Lock())
            waiting.turn.acquire()
            self._waiting.append(waiting)
            self._serve()
        self._wait(waiting)

    def give_back(self) -> None:
        """Give the caller's place back, if it has one."""
        thread = get_ident()
        if self._taken.get(thread) is sys._getframe(1):  # noqa: SLF001 - as above
            with self._lock:
                del self._taken[thread]
                if self._waiting:
                    self._serve()

    def drop(self) -> None:
        """Allow one call less than run now (but one at least), because the server refuses more connections."""
        with self._lock:
            self._limit = max(1, min(self._limit, len(self._taken)) - 1)

    def restore(self) -> None:
        """Use all places again."""
        with self._lock:
            self._limit = self._most
            self._serve()

    def _wait(self, waiting: _Waiting) -> None:
        """Wait for a place. At the end of the process, go on without one: the threads that have them may have ended."""
        try:
            while not (sys.is_finalizing() or waiting.turn.acquire(timeout=_LOOKS_EVERY)):
                if self._has_place(waiting):
                    return
        except BaseException:  # Ctrl-C
            with self._lock:
                with suppress(ValueError):
                    self._waiting.remove(waiting)
                if self._taken.get(waiting.thread) is waiting.frame:
                    del self._taken[waiting.thread]
                self._serve()
            raise

    def _has_place(self, waiting: _Waiting) -> bool:
        """Free places of calls that have ended. Return whether the call has a place, or is within a call that has one."""
        with self._lock:
            stacks = sys._current_frames()  # noqa: SLF001 - documented
            for thread, frame in [*self._taken.items()]:
                if not _is_on(stacks.get(thread), frame):
                    del self._taken[thread]
            outer = self._taken.get(waiting.thread)
            if outer and _is_on(waiting.frame, outer):
                with suppress(ValueError):
                    self._waiting.remove(waiting)
                return True
            if waiting not in self._waiting:  # an interrupt of the thread that served it
                self._waiting.append(waiting)
            self._serve()
            return False

    def _serve(self) -> None:
        """Give free places to the calls that have waited longest."""
        with self._lock:
            while self._waiting and len(self._taken) < self._limit:
                waiting = self._waiting[0]
                self._taken[waiting.thread] = waiting.frame
                self._waiting.popleft()
                waiting.turn.release()


def _is_on(stack: FrameType | None, frame: FrameType) -> bool:
    """Return whether the frame is on a stack, of which this is the newest frame."""
    while stack is not None and stack is not frame:
        stack = stack.f_back
    return stack is frame

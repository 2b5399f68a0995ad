"""Places: at most so many calls of a client run at once, each in a place. Threads wait for one, first come, first served."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from threading import Lock, RLock, get_ident
from typing import Any

#: How long a thread waits for a place before it goes on without one (s). An interrupt (Ctrl-C), or the end of a thread, may have
#: kept a place from being given back. Whoever goes on without one gives one back.
PATIENCE = 30.0


class Places:
    """The places of the calls of all threads."""

    def __init__(self, most: int) -> None:
        self._most = self._free = most
        #: A lock for each thread that waits, which is released once the thread has a place.
        self._waiting = deque[Any]()
        #: For each thread: its calls. A signal handler's call within another call needs no place.
        self._calls = dict[int, int]()
        self._lock = RLock()  # a signal handler may make a call while its thread is in here

    def take(self) -> None:
        """Take a place for the caller, or wait for one."""
        thread = get_ident()
        calls = self._calls[thread] = self._calls.get(thread, 0) + 1
        if calls > 1:
            return
        with self._lock:
            if self._free:
                self._free -= 1
                return
            turn = Lock()
            turn.acquire()
            self._waiting.append(turn)
        is_served = None
        try:
            is_served = turn.acquire(timeout=PATIENCE)
        finally:
            if not is_served:
                with self._lock, suppress(ValueError):  # it may have been served just now
                    self._waiting.remove(turn)
                    if is_served is None:  # Ctrl-C: it has no place to give back
                        del self._calls[thread]

    def give_back(self) -> None:
        """Give the caller's place back. It goes to the thread that has waited longest."""
        calls = self._calls.pop(thread := get_ident(), 0)
        if calls > 1:
            self._calls[thread] = calls - 1
        if calls != 1:
            return
        with self._lock:
            if self._waiting:
                self._waiting.popleft().release()
            elif self._free < self._most:
                self._free += 1

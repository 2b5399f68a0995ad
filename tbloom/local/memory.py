"""The contents of a filter without a server in the memory of this process."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from tbloom.engine.forks import ResetsInChild
from tbloom.errors import TBloomError
from tbloom.local.contents import Contents

Lock = AbstractContextManager[Any]


class Store(ResetsInChild):
    """The contents of a filter; ``version`` changes with ``contents``."""

    _guard: Any
    #: Let other processes in again. It is written in C, so that no interrupt comes before it has done so.
    unlock: Callable[[], object] = bool  # does nothing

    def __init__(self) -> None:
        self.contents: Contents = Contents()
        self.version: int = 0
        self._is_closed = False
        super().__init__()

    def reset(self) -> None:
        """Make a new guard: in a forked child, a thread that is gone may have held the parent's."""
        self._guard = threading.RLock()

    @property
    def guard(self) -> Lock:
        """Return the lock of this process' threads. Raise TBloomError in a signal handler that has interrupted its holder."""
        if self._guard._is_owned():  # noqa: SLF001 - as threading.Condition asks
            raise TBloomError(
                "a signal handler can't use a LocalBloom that is in use by the code that it interrupts"
            )
        guard: Lock = self._guard
        return guard

    @contextmanager
    def locked(self, *, is_change: bool = False) -> Iterator[None]:
        """Lock out other threads and processes; with ``is_change``, also those that only read.

        Raise TBloomError if the store is closed.
        """
        with self.guard:
            try:
                self.lock(is_change=is_change)
                yield
            finally:
                self.unlock()

    @property
    def is_ours(self) -> bool:
        """Whether no other part of this process has closed its file, or has put another one in its place."""
        return True

    @abstractmethod
    def lock(self, *, is_change: bool = False) -> None:
        """Lock out other processes, see ``locked``. The caller has the guard."""

    @abstractmethod
    def buffer(self, key: str) -> memoryview:
        """Return the bytes of a part, valid until ``version`` changes."""

    @abstractmethod
    def save(self, contents: Contents) -> None:
        """Replace the contents, and set the offsets of the parts in the new ones. New parts are empty.

        Raise OSError, with nothing changed, if there is no room for them.
        """

    @abstractmethod
    def close(self) -> None:
        """Release everything."""

    def _check_open(self) -> None:
        if self._is_closed:
            raise TBloomError("the filter is closed; make another LocalBloom")


class MemoryStore(Store):
    """Contents in memory."""

    def __init__(self) -> None:
        #: The bytes of each part, by the epoch and the name.
        self._bytes: dict[tuple[int, str], bytearray] = {}
        super().__init__()

    def lock(self, *, is_change: bool = False) -> None:  # noqa: ARG002
        """Lock out nobody: no other process has the store."""
        self._check_open()

    def buffer(self, key: str) -> memoryview:
        """Return the bytes of a part."""
        return memoryview(self._bytes[self.contents.epoch, key])

    def save(self, contents: Contents) -> None:
        """Replace the contents."""
        # At any line memory may not suffice, or an interrupt come: then the contents are the old ones or the new.
        held = {(contents.epoch, key): part.size for key, part in contents.parts.items()}
        for part, size in held.items():
            if part not in self._bytes:
                self._bytes[part] = bytearray(size)
        self.version += 1
        self.contents = contents
        self._bytes = {part: self._bytes[part] for part in held}

    def close(self) -> None:
        """Release the memory."""
        self.save(Contents())
        self._is_closed = True

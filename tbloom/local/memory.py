"""Where a filter without a server keeps its contents: in the memory of this process.

A store is used under its ``guard``, between ``lock`` and ``unlock`` (see ``Locked``). ``version`` is
another one whenever ``contents`` is. A fork leaves each process with a copy of its own.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Protocol

from tbloom.errors import TBloomError
from tbloom.local.contents import Contents

CLOSED = "the filter is closed; make another LocalBloom"
_stores: weakref.WeakSet[Store] = weakref.WeakSet()


class Store(Protocol):
    """What holds a filter's contents."""

    #: Of several threads of this process, one at a time.
    guard: threading.Lock
    contents: Contents
    version: int

    @property
    def era(self) -> tuple[int, int]:
        """Another one since the filter was cleared, and in a forked child that shares it with its parent."""

    def lock(self, *, exclusive: bool) -> None:
        """Of several processes one at a time, or those that only look; knows the newest contents then."""

    def unlock(self) -> None:
        """Lets the next one; also if ``lock`` has failed, or was interrupted."""

    def buffer(self, key: str) -> memoryview:
        """The bytes of a part; they are good until ``version`` changes."""

    def save(self, contents: Contents) -> None:
        """Goes on with other contents, which are the store's from now on; it notes in them where the parts are.
        New parts begin empty. Raises OSError, with nothing changed, where there is no room for them."""

    def close(self) -> None:
        """Lets go of everything."""

    def after_fork(self) -> None:
        """In a forked child, whose parent's other threads are gone, with what they held."""


class Unlocked:
    """Unlocks a store at the end of a ``with``, if a signal's exception has kept the ``Locked`` inside it from that."""

    __slots__ = ("_store",)

    def __init__(self, store: Store) -> None:
        self._store = store

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self._store.unlock()


class Locked:
    """The lock of a store, for a ``with`` inside the guard's own, which no signal can come between."""

    __slots__ = ("_exclusive", "_store")

    def __init__(self, store: Store, *, exclusive: bool) -> None:
        self._store, self._exclusive = store, exclusive

    def __enter__(self) -> None:
        try:
            self._store.lock(exclusive=self._exclusive)
        except BaseException:  # KeyboardInterrupt too, once it is locked
            self._store.unlock()
            raise

    def __exit__(self, *_: object) -> None:
        self._store.unlock()


def survives_fork(store: Store) -> None:
    """Sees to it that the store is told of a fork."""
    _stores.add(store)


def _tell_stores() -> None:
    for store in list(_stores):
        store.after_fork()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_tell_stores)


class MemoryStore:
    """Contents in memory."""

    def __init__(self) -> None:
        self.guard = threading.Lock()
        self.contents = Contents()
        self.version = 0
        self._bytes: dict[str, bytearray] = {}
        self._is_closed = False
        survives_fork(self)

    @property
    def era(self) -> tuple[int, int]:
        """A forked child has a copy, with what is untold in it."""
        return self.contents.epoch, 0

    def lock(self, *, exclusive: bool) -> None:  # noqa: ARG002 - nobody else is there
        """The guard is all that is needed."""
        if self._is_closed:
            raise TBloomError(CLOSED)

    def unlock(self) -> None:
        """Nothing was locked."""

    def buffer(self, key: str) -> memoryview:
        """The bytes of a part."""
        return memoryview(self._bytes[key])

    def save(self, contents: Contents) -> None:
        """Goes on with other contents."""
        before = self._bytes if contents.epoch == self.contents.epoch else {}
        # All of them first: there may be no memory.
        self._bytes = {
            key: before[key] if key in before else bytearray(part.size)
            for key, part in contents.parts.items()
        }
        self.contents = contents
        self.version += 1

    def close(self) -> None:
        """Lets go of the memory."""
        self.save(Contents())
        self._is_closed = True

    def after_fork(self) -> None:
        """A thread that is gone may have held the guard."""
        self.guard = threading.Lock()

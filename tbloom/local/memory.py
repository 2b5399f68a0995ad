"""Where a filter without a server keeps its contents: in the memory of this process.

A store is used under its ``guard``, between ``lock`` and ``unlock`` (see ``Locked``). ``version`` changes
with ``contents``. After a fork each process has a copy of its own.
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
    """The contents of a filter."""

    #: Held by one thread of this process at a time.
    guard: threading.Lock
    contents: Contents
    version: int

    @property
    def era(self) -> tuple[int, int]:
        """Changes when the filter is cleared, and in a forked child that shares it with its parent."""

    def lock(self, *, exclusive: bool) -> None:
        """Locks out other processes, or only those that write, and reads the newest contents."""

    def unlock(self) -> None:
        """Ends the lock; also after a ``lock`` that has failed or was interrupted."""

    def buffer(self, key: str) -> memoryview:
        """The bytes of a part, valid until ``version`` changes."""

    def save(self, contents: Contents) -> None:
        """Replaces the contents, and notes in the new ones where the parts are. New parts begin empty.
        Raises OSError, with nothing changed, where there is no room for them."""

    def close(self) -> None:
        """Releases everything."""

    def after_fork(self) -> None:
        """Repairs the store in a forked child, where the parent's other threads are gone."""


class Unlocked:
    """Unlocks a store at the end of a ``with``, where a signal's exception has kept the inner ``Locked`` from it."""

    __slots__ = ("_store",)

    def __init__(self, store: Store) -> None:
        self._store = store

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self._store.unlock()


class Locked:
    """The lock of a store, for a ``with`` that stands inside that of the guard."""

    __slots__ = ("_exclusive", "_store")

    def __init__(self, store: Store, *, exclusive: bool) -> None:
        self._store, self._exclusive = store, exclusive

    def __enter__(self) -> None:
        try:
            self._store.lock(exclusive=self._exclusive)
        except BaseException:  # also KeyboardInterrupt right after it was locked
            self._store.unlock()
            raise

    def __exit__(self, *_: object) -> None:
        self._store.unlock()


def survives_fork(store: Store) -> None:
    """Calls the store's ``after_fork`` in forked children."""
    _stores.add(store)


def _after_fork() -> None:
    for store in list(_stores):
        store.after_fork()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_after_fork)


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
        """A forked child has a copy, pending answers included."""
        return self.contents.epoch, 0

    def lock(self, *, exclusive: bool) -> None:  # noqa: ARG002 - no other process has it
        """Does nothing: the guard is enough."""
        if self._is_closed:
            raise TBloomError(CLOSED)

    def unlock(self) -> None:
        """Does nothing."""

    def buffer(self, key: str) -> memoryview:
        """The bytes of a part."""
        return memoryview(self._bytes[key])

    def save(self, contents: Contents) -> None:
        """Replaces the contents."""
        before = self._bytes if contents.epoch == self.contents.epoch else {}
        # Made before anything changes: memory may be short.
        self._bytes = {
            key: before[key] if key in before else bytearray(part.size)
            for key, part in contents.parts.items()
        }
        self.contents = contents
        self.version += 1

    def close(self) -> None:
        """Releases the memory."""
        self.save(Contents())
        self._is_closed = True

    def after_fork(self) -> None:
        """Makes a new guard: a thread that is gone may have held the old one."""
        self.guard = threading.Lock()

"""Where a filter without a server keeps its contents: in the memory of this process.

A store is used under its locks; ``version`` changes with ``contents``. After a fork each process has a copy of
its own.
"""

from __future__ import annotations

import os
import threading
import weakref
from contextlib import AbstractContextManager
from typing import Any, Protocol

from tbloom.errors import TBloomError
from tbloom.local.contents import Contents

CLOSED = "the filter is closed; make another LocalBloom"
Lock = AbstractContextManager[Any]
_stores: weakref.WeakSet[Store] = weakref.WeakSet()


class Store(Protocol):
    """The contents of a filter."""

    version: int

    @property
    def guard(self) -> Lock:
        """``with store.guard, store.shared`` (or ``exclusive``): a look (or a change) that is atomic to all others, in
        this process and in those that share the store."""

    @property
    def shared(self) -> Lock:
        """Locks out other processes that write, and reads the newest contents."""

    @property
    def exclusive(self) -> Lock:
        """Locks out other processes, and reads the newest contents."""

    @property
    def contents(self) -> Contents:
        """The parameters, the layouts and the parts."""

    @property
    def era(self) -> tuple[int, int]:
        """Changes when the filter is cleared, and in a forked child that shares it with its parent."""

    def buffer(self, key: str) -> memoryview:
        """The bytes of a part, valid until ``version`` changes."""

    def save(self, contents: Contents) -> None:
        """Replaces the contents, and notes in the new ones where the parts are. New parts begin empty.
        Raises OSError, with nothing changed, where there is no room for them."""

    def close(self) -> None:
        """Releases everything."""

    def after_fork(self) -> None:
        """Repairs the store in a forked child, where the parent's other threads are gone."""


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
        self._contents = Contents()
        self.version = 0
        self._bytes: dict[str, bytearray] = {}
        self._is_closed = False
        self.after_fork()
        survives_fork(self)

    @property
    def contents(self) -> Contents:
        """The parameters, the layouts and the parts. Raises TBloomError where the store is closed."""
        if self._is_closed:
            raise TBloomError(CLOSED)
        return self._contents

    @property
    def era(self) -> tuple[int, int]:
        """A forked child has a copy, pending answers included."""
        return self._contents.epoch, 0

    def buffer(self, key: str) -> memoryview:
        """The bytes of a part."""
        return memoryview(self._bytes[key])

    def save(self, contents: Contents) -> None:
        """Replaces the contents."""
        before = self._bytes if contents.epoch == self._contents.epoch else {}
        # Made before anything changes: memory may be short.
        self._bytes = {
            key: before[key] if key in before else bytearray(part.size)
            for key, part in contents.parts.items()
        }
        self._contents = contents
        self.version += 1

    def close(self) -> None:
        """Releases the memory."""
        self.save(Contents())
        self._is_closed = True

    def after_fork(self) -> None:
        """Makes a new guard: a thread that is gone may have held the old one."""
        # No other process has the store, so the others are the guard once more: it costs nothing.
        self.guard = self.shared = self.exclusive = threading.RLock()

"""The lock of a file, as a context."""

from __future__ import annotations

from typing import Protocol


class Lockable(Protocol):
    """What can be locked for all processes."""

    def lock(self, how: int) -> None:
        """Waits for the lock."""

    def unlock(self) -> None:
        """Ends the lock; also after a ``lock`` that has failed or was interrupted."""


class Locked:
    """The lock of a file, for a ``with`` that stands inside that of the guard."""

    __slots__ = ("_how", "_store")

    def __init__(self, store: Lockable, how: int) -> None:
        self._store, self._how = store, how

    def __enter__(self) -> None:
        try:
            self._store.lock(self._how)
        except BaseException:  # also KeyboardInterrupt right after it was locked
            self._store.unlock()
            raise

    def __exit__(self, *_: object) -> None:
        try:
            self._store.unlock()
        except BaseException:  # the same, before it was unlocked
            self._store.unlock()
            raise

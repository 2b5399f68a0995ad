"""Objects that belong to one process: a forked one does not share them with its parent, and nothing copies them."""

from __future__ import annotations

import os
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from threading import RLock
from typing import Any, NoReturn

_methods: weakref.WeakKeyDictionary[Any, Callable[[Any], None]] = weakref.WeakKeyDictionary()


def call_in_child(method: Any) -> None:
    """Register a method that is called in each forked child, as long as its object exists. An object has at most one."""
    # A WeakMethod's callback would print an error when Python ends.
    _methods[method.__self__] = method.__func__


class NotCopied:
    """An object with connections, locks or files, which neither a copy nor another process can use."""

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"a {type(self).__name__} can't be copied or pickled: make another one where it is needed"
        )


class ResetsInChild(ABC):
    """An object that resets itself in a forked child."""

    __slots__ = ("__weakref__",)

    def __init__(self) -> None:
        self.reset()
        call_in_child(self.reset)

    @abstractmethod
    def reset(self) -> None:
        """Set the initial state."""


class ProcessLock(ResetsInChild):
    """A reentrant ``lock`` of one process. In a forked child it is free, though a thread of the parent may hold it."""

    __slots__ = ("lock",)

    def reset(self) -> None:
        """Make a new lock."""
        self.lock: AbstractContextManager[bool] = RLock()


def _after_fork() -> None:
    for owner, method in list(_methods.items()):  # a copy, because a method may register others
        method(owner)


if hasattr(os, "register_at_fork"):  # Windows has no forks
    os.register_at_fork(after_in_child=_after_fork)

"""What a forked process must not share with its parent."""

from __future__ import annotations

import os
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

_methods: weakref.WeakKeyDictionary[Any, Callable[[Any], None]] = weakref.WeakKeyDictionary()


def in_child(method: Any) -> None:
    """Calls an object's method in forked children, as long as the object exists: one method of each object."""
    # (A WeakMethod's callback prints an error when Python ends.)
    _methods[method.__self__] = method.__func__


class BeginsAnew(ABC):
    """Something that begins anew in a forked child."""

    __slots__ = ("__weakref__",)

    def __init__(self) -> None:
        self.begin()
        in_child(self.begin)

    @abstractmethod
    def begin(self) -> None:
        """Forgets everything."""


def _after_fork() -> None:
    for owner, method in list(_methods.items()):  # one may make others
        method(owner)


if hasattr(os, "register_at_fork"):  # Windows has no forks
    os.register_at_fork(after_in_child=_after_fork)

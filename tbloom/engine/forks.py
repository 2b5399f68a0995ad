"""What a forked process must not share with its parent."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from weakref import WeakSet


class BeginsAnew(ABC):
    """Something that begins anew in a forked child."""

    __slots__ = ("__weakref__",)

    def __init__(self) -> None:
        self.begin()
        _all.add(self)

    @abstractmethod
    def begin(self) -> None:
        """Forgets everything."""


_all: WeakSet[BeginsAnew] = WeakSet()


def _begin_all() -> None:
    for one in list(_all):  # one may make others
        one.begin()


if hasattr(os, "register_at_fork"):  # Windows has no forks
    os.register_at_fork(after_in_child=_begin_all)

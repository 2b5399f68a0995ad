"""Tokens that make a call safe to resend.

A token is a lane's name and a number. The server keeps the answer to the last call of each lane, and gives it again to a
call with the same number. One answer is enough, because a lane has one call at a time: a call takes a free lane, or a new
one, and frees it once the answer is here. A lane whose call got no answer is never used again, because a late copy of that
call may still arrive.
"""

from __future__ import annotations

import os
import secrets
from collections import deque
from itertools import count
from weakref import WeakSet

#: How long the server keeps a lane's answer (ms): longer than all retries take (redis-py's default: 10 of at most 5 s
#: each; the time-out of scrapy-redis: 30 s).
LANE_TTL_MS = 3_600_000


class Lane:
    """One lane of a client, in the process ``pid``; ``number``: of its present call, or its last one."""

    __slots__ = ("name", "number", "pid")

    def __init__(self, name: str) -> None:
        self.name = name
        self.pid = os.getpid()
        self.number = 0

    def is_ours(self) -> bool:
        """Whether this process made it, not one that this process was forked from."""
        return self.pid == os.getpid()


class LanePool:
    """The lanes of one client, for any number of threads and tasks; a forked process becomes a client of its own.

    No lock is needed: one operation on a deque takes or frees a lane.
    """

    __slots__ = ("__weakref__", "_client", "_free", "_unused")

    def __init__(self) -> None:
        self._begin()
        _pools.add(self)

    def _begin(self) -> None:
        """Becomes another client."""
        self._client = secrets.token_hex(8)
        self._free: deque[Lane] = deque()
        self._unused = count()

    def take(self) -> Lane:
        """A free lane, with the number of its next call; no other call gets it until it is given back."""
        try:
            lane = self._free.pop()
        except IndexError:
            lane = Lane(f"{self._client}:{next(self._unused)}")
        lane.number += 1
        return lane

    def give_back(self, lane: Lane) -> None:
        """Frees the lane for the next call."""
        if lane.is_ours():
            self._free.append(lane)


_pools: WeakSet[LanePool] = WeakSet()


def _begin_all() -> None:
    for pool in _pools:
        pool._begin()  # noqa: SLF001 - its own module


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_all)

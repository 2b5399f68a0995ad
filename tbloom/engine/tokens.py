"""Tokens that make a call safe to send again.

A call carries (client, lane, number), and the server keeps the answer of a
lane's last call. That is enough because a lane carries one call at a time:
whoever makes a call takes a free lane, or opens one more, and gives it back
once the call is answered. A lane whose call ended without an answer is never
used again: a stray copy of that call may still be on its way.
"""

from __future__ import annotations

import os
import secrets
from collections import deque
from itertools import count

#: How long the server keeps a lane's answer: longer than any retry takes (redis-py's default is
#: 10 resends of at most 5 s each, scrapy-redis' time-out is 30 s).
LANE_TTL_MS = 3_600_000


class Lane:
    """One lane of one client."""

    __slots__ = ("client", "lane", "number", "pid")

    def __init__(self, client: str, lane: int, pid: int) -> None:
        self.client = client
        self.lane = lane
        self.pid = pid
        self.number = 0

    def next_number(self) -> int:
        """The number of the lane's next call."""
        self.number += 1
        return self.number

    def is_ours(self) -> bool:
        """Whether it belongs to this process, not to one that this was forked from."""
        return self.pid == os.getpid()


class _Identity:
    """A client's name and its lanes, as they are in one process."""

    __slots__ = ("client", "free", "pid", "unused")

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.client = secrets.token_hex(8)
        self.free: deque[Lane] = deque()
        self.unused = count()


class Lanes:
    """The lanes of one client, for any number of threads and tasks.

    A forked process becomes a client of its own. No lock is needed: a lane is taken and given back
    by one operation on a deque, and where two threads of a forked process meet here first, each
    becomes a client for a moment, which is as good.
    """

    __slots__ = ("_identity",)

    def __init__(self) -> None:
        self._identity = _Identity()

    def take(self) -> Lane:
        """A lane that nobody else uses until it is given back."""
        identity = self._identity
        if identity.pid != os.getpid():
            identity = self._identity = _Identity()
        try:
            return identity.free.pop()
        except IndexError:
            return Lane(identity.client, next(identity.unused), identity.pid)

    def give_back(self, lane: Lane) -> None:
        """Frees the lane for the next call."""
        identity = self._identity
        if lane.client == identity.client:
            identity.free.append(lane)

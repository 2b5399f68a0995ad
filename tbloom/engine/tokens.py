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

#: How long the server keeps a lane's answer (ms): longer than all retries take (redis-py's default: 10 of at most 5 s
#: each; the time-out of scrapy-redis: 30 s).
LANE_TTL_MS = 3_600_000


class Lane:
    """One lane of one client, in the process ``pid``; ``number``: of its present call, or its last one."""

    __slots__ = ("name", "number", "pid")

    def __init__(self, name: str, pid: int) -> None:
        self.name = name
        self.pid = pid
        self.number = 0

    def is_ours(self) -> bool:
        """Whether this process made it, not one that this process was forked from."""
        return self.pid == os.getpid()


class _Identity:
    """A client's name and its lanes in one process."""

    __slots__ = ("client", "free", "pid", "unused")

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.client = secrets.token_hex(8)
        self.free: deque[Lane] = deque()
        self.unused = count()


class LanePool:
    """The lanes of one client, for any number of threads and tasks.

    A forked process becomes a client of its own. No lock is needed: one operation on a deque takes or frees a lane. If two
    threads of a new process arrive here at once, each becomes a client, and one of the two goes unused afterwards.
    """

    __slots__ = ("_identity",)

    def __init__(self) -> None:
        self._identity = _Identity()

    def take(self) -> Lane:
        """A free lane, with the number of its next call; no other call gets it until it is given back."""
        identity = self._identity
        if identity.pid != os.getpid():
            identity = self._identity = _Identity()
        try:
            lane = identity.free.pop()
        except IndexError:
            lane = Lane(f"{identity.client}:{next(identity.unused)}", identity.pid)
        lane.number += 1
        return lane

    def give_back(self, lane: Lane) -> None:
        """Frees the lane for the next call."""
        identity = self._identity
        if lane.pid == identity.pid:
            identity.free.append(lane)

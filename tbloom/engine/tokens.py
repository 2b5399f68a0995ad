"""Tokens that make a call safe to resend.

A token is a lane's name and a number. The server keeps the answer to the last call of each lane, and gives it again to a
call with the same number. One answer is enough, because a lane has one call at a time: a call takes a free lane, or a new
one, and frees it once the answer is here. A lane whose call got no answer is never used again, because a late copy of that
call may still arrive.
"""

from __future__ import annotations

import secrets
from collections import deque
from itertools import count

from tbloom.engine.forks import BeginsAnew

#: How long the server keeps a lane's answer (ms): longer than all retries take (redis-py's default: 10 of at most 5 s
#: each; the time-out of scrapy-redis: 30 s).
LANE_TTL_MS = 3_600_000


class Lane:
    """One lane of a client; ``number``: of its present call, or its last one."""

    __slots__ = ("name", "number")

    def __init__(self, name: str) -> None:
        self.name = name
        self.number = 0


class LanePool(BeginsAnew):
    """The lanes of one client, for any number of threads and tasks; a forked process becomes a client of its own.

    No lock is needed: one operation on a deque takes or frees a lane.
    """

    __slots__ = ("_client", "_free", "_unused")

    def begin(self) -> None:
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
        if lane.name.startswith(self._client):  # else it was taken before a fork
            self._free.append(lane)

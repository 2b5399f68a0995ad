"""Tokens that make a call safe to resend.

A token is a lane's name and a number. The server keeps the answer to the last call of each lane, and gives it again to a
call with the same number. One answer is enough, because a lane has one call at a time: a call takes a free lane, or a new
one, and frees it once the answer is here. A lane whose call got no answer is never used again, because a late copy of that
call may still arrive. NFS version 4.1 makes calls safe to resend in the same way: a lane is what it calls a slot (RFC 8881, section
2.10.6, "Exactly Once Semantics").
"""

from __future__ import annotations

import secrets
from collections import deque
from itertools import count

#: How long the server keeps a lane's answer (ms): longer than all retries take (redis-py's default: 10 of at most 5 s
#: each; the time-out of scrapy-redis: 30 s).
LANE_TTL_MS = 3_600_000


class Lane:
    """One lane of a client; ``number``: of its present call, or its last one."""

    __slots__ = ("field", "name", "number", "token")

    def __init__(self, name: str) -> None:
        self.name: str = name
        #: Where a filter's state has it.
        self.field: bytes = b"L" + name.encode()
        self.number: int = 0
        #: The token of its present call, as a filter's scripts take it (``lua/shared/lanes.lua``).
        self.token: bytes = b""


#: Where calls go that need no token.
NO_LANE = Lane("")


class LanePool:
    """The lanes of one client, for any number of threads and tasks.

    No lock is needed: one operation on a deque takes or frees a lane.
    """

    __slots__ = ("_client", "_unused", "free")

    def __init__(self) -> None:
        self._client = secrets.token_urlsafe(6)
        #: The lanes whose last call has its answer; a call that has frees its lane.
        self.free: deque[Lane] = deque()
        self._unused = count()

    def take(self) -> Lane:
        """A free lane, with the number of its next call; no other call gets it until it is free again."""
        try:
            lane = self.free.pop()
        except IndexError:
            lane = Lane(f"{self._client}{next(self._unused)}")
        lane.number += 1
        lane.token = b"%x %b" % (lane.number, lane.field)
        return lane

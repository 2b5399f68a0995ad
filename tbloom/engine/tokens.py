"""Tokens that make a call safe to resend.

A token is the name of a lane, and a number. The server keeps the answer to the last call of each lane, and repeats it if a
call comes with the same number. One answer is enough, because a lane has one call at a time: a call takes a free lane, or a
new one, and frees it when its answer has come. If a call gets no answer, its lane is not used again, because a late copy of the
call may still arrive. NFS version 4.1 uses the same method, where a lane is called a slot (RFC 8881, section 2.10.6, "Exactly
Once Semantics").
"""

from __future__ import annotations

import secrets
from collections import deque
from itertools import count

#: The longest time for which tbloom retries a call (s).
MAX_RETRY_FOR = 3600.0
#: How long the server keeps a lane's answer (ms), also as ``IDLE`` in ``lua/shared/lane_entries.lua``. A client begins to ask for a
#: lost answer within the first half, so that its question, too, can be retried for ``MAX_RETRY_FOR``.
LANE_TTL_MS = 4 * 3_600_000


class Lane:
    """One lane of a client. ``number`` is the number of its current or last call."""

    __slots__ = ("field", "name", "number", "token")

    def __init__(self, name: str) -> None:
        self.name: str = name
        #: The lane's field in a filter's state.
        self.field: bytes = b"L" + name.encode()
        self.number: int = 0
        #: The token of the current or last call, as scripts read it (``lua/shared/lanes.lua``).
        self.token: bytes = b""


#: Placeholder lane of calls without a token.
NO_LANE = Lane("")


class LanePool:
    """The lanes of one client, for any number of threads and tasks.

    No lock is needed: one operation on a deque takes or frees a lane.
    """

    __slots__ = ("_client", "_unused", "free")

    def __init__(self) -> None:
        self._client = secrets.token_urlsafe(6)
        #: The lanes whose last call has its answer.
        self.free: deque[Lane] = deque()
        self._unused = count()

    def take(self) -> Lane:
        """Take a free lane, or a new one, and give it the number of its next call.

        No other call gets the lane until the caller adds it to ``free``.
        """
        try:
            lane = self.free.pop()
        except IndexError:
            lane = Lane(f"{self._client}{next(self._unused)}")
        lane.number += 1
        lane.token = b"%x %b" % (lane.number, lane.field)
        return lane

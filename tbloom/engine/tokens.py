"""Tokens that make a call safe to resend.

A token is a lane's name and a number. The server keeps the answer to the last call of each lane, and gives it again to a
call with the same number. One answer is enough, because a lane has one call at a time: a call takes a free lane, or a new
one, and frees it once the answer is here. A lane whose call got no answer is never used again, because a late copy of that
call may still arrive.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable, Iterable
from itertools import count
from typing import Any

from tbloom.engine.flow import ScriptCall, bulks
from tbloom.engine.scripts import Script

#: How long the server keeps a lane's answer (ms): longer than all retries take (redis-py's default: 10 of at most 5 s
#: each; the time-out of scrapy-redis: 30 s).
LANE_TTL_MS = 3_600_000
#: A word of a command in RESP: its length, and itself.
_WORD = b"$%d\r\n%b\r\n"


class Lane:
    """One lane of a client; ``number``: of its present call, or its last one."""

    __slots__ = ("name", "number")

    def __init__(self, name: str) -> None:
        self.name = name
        self.number = 0


class LanePool:
    """The lanes of one client, for any number of threads and tasks.

    No lock is needed: one operation on a deque takes or frees a lane.
    """

    __slots__ = ("_client", "_free", "_unused")

    def __init__(self) -> None:
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

    def give_back(self, lanes: Iterable[Lane]) -> None:
        """Frees the lanes for the next calls."""
        self._free.extend(lanes)


class CallTemplate:
    """What all calls of a script have in common; the items differ, and the token.

    The items are the last argument, as ``pack`` packs them. With a token, the lane's key is the first key, and the call's
    number is the first argument; ``lanes``: what the lane's key begins with.
    """

    __slots__ = ("_after_key", "_after_number", "_before", "_lanes", "_pack", "_script")

    def __init__(
        self,
        script: Script,
        keys: tuple[str, ...],
        args: tuple[Any, ...],
        pack: Callable[[list[Any]], bytes],
        *,
        lanes: str = "",
    ) -> None:
        self._script, self._pack, self._lanes = script, pack, lanes
        with_token = 1 if lanes else 0
        words = ("EVALSHA", script.sha, len(keys) + with_token)
        self._before = b"*%d\r\n" % (4 + len(keys) + len(args) + 2 * with_token) + bulks(words)
        self._after_key, self._after_number = bulks(keys), bulks(args)

    def fill(self, digests: list[Any], token: Lane | None = None) -> ScriptCall:
        """The call for these items."""
        return ScriptCall(self._script, packed=self.packed(digests, token))

    def packed(self, digests: list[Any], token: Lane | None = None) -> bytes:
        """The call for these items in RESP."""
        items, key, number = self._pack(digests), b"", b""
        if token is not None:
            lane, digits = (self._lanes + token.name).encode(), b"%d" % token.number
            key, number = _WORD % (len(lane), lane), _WORD % (len(digits), digits)
        words = self._before, key, self._after_key, number, self._after_number
        return b"".join(words) + _WORD % (len(items), items)

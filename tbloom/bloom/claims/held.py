"""The claims of one process, and its session."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Mapping
from enum import Enum
from itertools import count

from tbloom.engine.batches import cut


class Claim(Enum):
    """The answer of ``claim``."""

    #: New, and now claimed by you.
    NEW = "new"
    #: Seen within the window.
    SEEN = "seen"
    #: Claimed by a living session, which may yet commit or release it.
    BUSY = "busy"


class HeldClaims:
    """The claims of one process, in one session."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.session = secrets.token_hex(8)
        #: The claimed items, each with the number of the call that claimed it.
        self.claimed: dict[bytes, str] = {}
        #: Claims to be released: their call ended in an error, so the client does not know of them.
        self.to_release: dict[bytes, str] = {}
        #: Items to be committed: their commit ended in an error.
        self.to_commit: dict[bytes, None] = {}
        #: True if other sessions are to end claims of this one.
        self.handed_over = False
        #: The shards that know the session.
        self.shards: set[int] = set()
        self._numbers = count()

    @property
    def is_busy(self) -> bool:
        """True if there are claims, or calls to repeat."""
        return bool(self.claimed or self.to_release or self.to_commit)

    def forget(self) -> None:
        """Forgets all claims: the filter was cleared."""
        self.handed_over = False
        self.claimed.clear()
        self.to_release.clear()
        self.to_commit.clear()

    def reserve(self, digests: Iterable[bytes], *, handed_over: bool) -> dict[bytes, str]:
        """Reserves items before the server is asked, so that no other thread or task here claims them.

        Returns those that it got, with their numbers. An item whose call ended in an error keeps
        that call's number, by which the server knows it. With ``handed_over``, items that are claimed
        here are claimed again.
        """
        number, reserved = f"{next(self._numbers) % (1 << 32):08x}", dict[bytes, str]()
        for digest in digests:
            if handed_over:
                self.claimed.pop(digest, None)
            if self.claimed.setdefault(digest, number) is number:
                reserved[digest] = self.claimed[digest] = self.to_release.pop(digest, number)
        return reserved

    def release_later(self, numbers: Mapping[bytes, str]) -> None:
        """Notes claims that the server may hold, and the client does not know of."""
        for digest, number in numbers.items():
            self.claimed.pop(digest, None)
            self.to_release[digest] = number
        cut(self.to_release)

    def hold(self, digests: Iterable[bytes]) -> None:
        """Holds claims that were to be released."""
        for digest in digests:
            number = self.to_release.pop(digest, None)
            if number is not None:
                self.claimed[digest] = number

    def commit_later(self, digests: Iterable[bytes]) -> None:
        """Notes items whose work is done, but whose commit may not have reached the server."""
        self.to_commit.update(dict.fromkeys(digests))
        cut(self.to_commit)

"""What one process claims, and as whom."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Mapping
from enum import Enum
from itertools import count

from tbloom.engine.batches import cut


class Claim(Enum):
    """What ``claim`` says of an item."""

    #: Yours to work on: nobody has seen it, and nobody works on it.
    NEW = "new"
    #: Seen within the window.
    SEEN = "seen"
    #: Claimed by somebody who is alive, and may yet commit or release it.
    BUSY = "busy"


class Holdings:
    """What one process claims, as which session."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.session = secrets.token_hex(8)
        #: Items, and the number of the call that claimed each.
        self.held: dict[int, str] = {}
        #: Claims that nobody here knows of, because their call ended in an error: to be released.
        self.owed: dict[int, str] = {}
        #: Items whose commit ended in an error.
        self.undone: dict[int, None] = {}
        #: Whether others are to end claims of this session.
        self.handed_over = False
        #: The shards that know the session.
        self.shards: set[int] = set()
        self._numbers = count()

    @property
    def is_busy(self) -> bool:
        """Whether there are claims, or errors to make up for."""
        return bool(self.held or self.owed or self.undone)

    def forget(self) -> None:
        """The filter was cleared: nothing is claimed any more, and nothing to be made up for."""
        self.handed_over = False
        self.held.clear()
        self.owed.clear()
        self.undone.clear()

    def are_ours(self) -> bool:
        """Whether they belong to this process, not to one that this was forked from."""
        return self.pid == os.getpid()

    def reserve(self, digests: Iterable[int], *, given: bool) -> dict[int, str]:
        """Takes those that no other thread or task here holds, before the server is asked; with their numbers.

        One whose call ended in an error keeps the number of that call, by which the server knows it.
        ``given``: what is held here may be claimed anew, because it was handed over.
        """
        number, ours = f"{next(self._numbers) % (1 << 32):08x}", dict[int, str]()
        for digest in digests:
            if given:
                self.held.pop(digest, None)
            if self.held.setdefault(digest, number) is number:
                ours[digest] = self.held[digest] = self.owed.pop(digest, number)
        return ours

    def owe(self, numbers: Mapping[int, str]) -> None:
        """Notes that the server may hold claims that nobody here knows of."""
        for digest, number in numbers.items():
            self.held.pop(digest, None)
            self.owed[digest] = number
        cut(self.owed)

    def note_undone(self, digests: Iterable[int]) -> None:
        """Notes that the items are done, and that the server may not know."""
        self.undone.update(dict.fromkeys(digests))
        cut(self.undone)

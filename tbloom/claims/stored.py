"""What the server stores of claims and sessions, read without a script. ``lua/shared/claims.lua`` explains the fields."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from tbloom.claims.notes import PLACE
from tbloom.engine.flow import pairs, text

#: The owner of an item that a session or a program has left. That says nothing against the item.
LEFT = "0" * 16
#: The owner of an item whose session has died, perhaps because of the item: one death more counts than its place says.
BEREFT = "0" * 15 + "1"
#: An item of which so many sessions have died may kill the next one, too.
SUSPECT = 2
#: The length of what a claim has before its note: the owner, the number of the call, and the place.
HEAD = 24 + PLACE


class ClaimHead(NamedTuple):
    """What a claim has before its note."""

    owner: str
    #: The hash of the queue.
    queue: str
    #: The digit that the place has for the deaths.
    place_deaths: int
    host: str
    failures: int

    @classmethod
    def read(cls, claim: bytes) -> ClaimHead:
        """Return the head of a stored claim that has a note."""
        head = claim[:HEAD].decode("latin-1")  # another program may have written any bytes
        return cls(head[:16], head[24:32], _digit(head[32:33]), head[33:37], _digit(head[37:38]))

    @property
    def deaths(self) -> int:
        """The number of sessions that have died of the item."""
        return self.place_deaths + (self.owner == BEREFT)

    def member_of(self, digest: bytes) -> bytes:
        """Return the member of the index for the item, if it is left, or has failed."""
        deaths = min(8, self.deaths) if self.owner in (LEFT, BEREFT) else 9
        return f"{self.queue}{deaths}{self.host}".encode("latin-1") + digest


def member_of(claim: bytes | None, digest: bytes) -> bytes | None:
    """Return the member of the index for a stored claim; None: it has no note."""
    if not claim or len(claim) <= HEAD:
        return None
    return ClaimHead.read(claim).member_of(digest)


class SessionEntry(NamedTuple):
    """A session as the server knows it: until when it is alive, the hash of its queue, and until when it waits (ms)."""

    until: int
    queue: str = ""
    waits_until: int = 0


def session_entries(of_shards: Iterable[Any]) -> dict[str, SessionEntry]:
    """Return the sessions that have not ended, from those of each shard. One waits if it got nothing from any shard."""
    found = dict[str, SessionEntry]()
    for of_shard in of_shards:
        for field, entry in pairs(of_shard).items():
            name = text(field)
            match len(name), text(entry).split():
                case [16, [until, queue, waits]]:
                    known = found.get(name)
                    waits_until = min(known.waits_until, int(waits)) if known else int(waits)
                    found[name] = SessionEntry(int(until), queue, waits_until)
                case [16, [until]]:
                    found.setdefault(name, SessionEntry(int(until)))
    return found


def _digit(stored: str) -> int:
    return int(stored) if stored.isdecimal() else 0

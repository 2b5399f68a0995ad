"""The session of one process, and what it has claimed."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from enum import Enum
from threading import RLock


class Claim(Enum):
    """The answer of ``claim``."""

    #: New, and now claimed by you.
    NEW = "new"
    #: Seen within the window.
    SEEN = "seen"
    #: Claimed by a living session, which may yet commit or release it.
    BUSY = "busy"


class Session:
    """The session of one process, and its claims."""

    def __init__(self) -> None:
        self.name: str = secrets.token_hex(8)
        #: The claimed items, each with the number of the call that claimed it, until the server has ended the claim.
        self.claimed: dict[bytes, str] = {}
        #: Claims to be released, each with the number of its last call: that ended in an error, so the client does not know of
        #: them; or their release did.
        self.to_release: dict[bytes, str] = {}
        #: The numbers of calls of which a copy may come late, and claim again what was released.
        self.late: set[str] = set()
        #: Items to be committed, each with the age of its slice: their commit ended in an error.
        self.to_commit: dict[bytes, int] = {}
        #: True if other sessions are to end claims of this one.
        self.handed_over: bool = False
        #: The shards that know the session.
        self.shards: set[int] = set()
        #: The number of the next call of ``claim``, and those of the running ones.
        self._next, self._running = 0, set[str]()
        #: For what the threads of the process do one after another.
        self.lock: AbstractContextManager[bool] = RLock()

    @property
    def is_busy(self) -> bool:
        """True if there are claims, or calls to repeat."""
        return bool(self.claimed or self.to_release or self.to_commit)

    @property
    def is_used(self) -> bool:
        """The session has claims or calls to repeat, or shards know it."""
        return self.is_busy or bool(self.shards)

    def forget(self) -> None:
        """Forgets all claims: the filter was cleared."""
        self.handed_over = False
        self.claimed.clear()
        self.to_release.clear()
        self.late.clear()
        self.to_commit.clear()

    @contextmanager
    def calling(self, digests: Collection[bytes]) -> Iterator[str]:
        """The number of a call of ``claim``. An exception in it, also after the server's answer, gives up what it claimed.

        Once it has ended, the server may refuse late copies of it.
        """
        with self.lock:
            number = self._next_number
            self._next += 1
            self._running.add(number)
        try:
            yield number
        except BaseException:  # also GeneratorExit: the driver was cancelled
            self.give_up(digests, number)
            raise
        finally:
            with self.lock:
                self._running.discard(number)

    def reserve(self, digests: Iterable[bytes], number: str, *, handed_over: bool) -> list[bytes]:
        """The items that the call reserves, before the server is asked, so that no other thread or task here claims them.

        With ``handed_over``, items that are claimed here are claimed again.
        """
        reserved = []
        for digest in digests:
            if handed_over:
                self.claimed.pop(digest, None)
            if self.claimed.setdefault(digest, number) is number:
                reserved.append(digest)
        return reserved

    @property
    def least(self) -> str:
        """The least number that a claim may have from now on."""
        with self.lock:
            return min(self._running, default=self._next_number)

    @property
    def _next_number(self) -> str:
        return f"{self._next:08x}"

    def give_up(self, digests: Iterable[bytes], number: str | None = None) -> None:
        """Notes claims to be released, because their answers did not reach the client; with ``number``, those of one call."""
        for digest in digests:
            claimed = self.claimed.get(digest)
            if claimed and number in (None, claimed):
                self.late.add(claimed)
                self.release_later({digest: claimed})
                self.claimed.pop(digest, None)

    def note_late_copies(self, digests: Iterable[bytes], number: str) -> None:
        """Notes that a copy of this call may come late, and claim those of the items that it was not given."""
        self.late.add(number)
        self.release_later({digest: number for digest in digests if digest not in self.claimed})

    def release_later(self, numbers: Mapping[bytes, str]) -> None:
        """Notes claims to be released. A release ends earlier claims of its item too: one of a later call stays noted."""
        for digest, number in numbers.items():
            self.to_release[digest] = max(number, self.to_release.get(digest, ""))

    def server_knows(self, least: str) -> None:
        """The server refuses calls with lower numbers now."""
        self.late = {number for number in self.late if number >= least}

    def given_up(self, digests: Iterable[bytes]) -> dict[bytes, str]:
        """Those of the items that were given up, with their numbers."""
        to_release = self.to_release
        # An item that is still claimed is not given up: only its release has failed, and may be called again.
        given_up = [key for key in digests if key in to_release and key not in self.claimed]
        return {key: number for key in given_up if (number := to_release.get(key))}

    def end(self, numbers: Mapping[bytes, str]) -> None:
        """Forgets claims that the server has ended. Where a late copy may claim again, they are to be released once more."""
        for digest, number in numbers.items():
            if self.claimed.get(digest) == number:
                self.claimed.pop(digest, None)
            if number in self.late:
                self.release_later({digest: number})
            elif self.to_release.get(digest) == number:
                self.to_release.pop(digest, None)

    def hold(self, digests: Iterable[bytes]) -> None:
        """Holds claims that were to be released."""
        for digest in digests:
            number = self.to_release.pop(digest, None)
            if number is not None:
                self.claimed[digest] = number

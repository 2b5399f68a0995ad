"""The session of one process, and its claims."""

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
        #: Claims to release, each with the number of its last call. That call ended in an error, so its answers are not known;
        #: or a release ended in one.
        self.to_release: dict[bytes, str] = {}
        #: The numbers of calls whose late copies may claim released items again.
        self.late: set[str] = set()
        #: Items to commit again, each with the age of its slice, because their commit ended in an error.
        self.to_commit: dict[bytes, int] = {}
        #: True if claims were handed over, which other sessions end.
        self.handed_over: bool = False
        #: The shards that know the session.
        self.shards: set[int] = set()
        #: The number of the next call of ``claim``, and the numbers of the running calls.
        self._next, self._running = 0, set[str]()
        #: Guards the session's numbers, and the start of the heartbeat thread.
        self.lock: AbstractContextManager[bool] = RLock()

    @property
    def is_busy(self) -> bool:
        """True if the session has claims, or calls to repeat."""
        return bool(self.claimed or self.to_release or self.to_commit)

    @property
    def is_used(self) -> bool:
        """True if the session has claims or calls to repeat, or shards know it."""
        return self.is_busy or bool(self.shards)

    def forget(self) -> None:
        """Forget all claims, because the filter was cleared."""
        self.handed_over = False
        self.claimed.clear()
        self.to_release.clear()
        self.late.clear()
        self.to_commit.clear()

    @contextmanager
    def calling(self, digests: Collection[bytes]) -> Iterator[str]:
        """Yield a number for a call of ``claim``. Give up the call's claims if it ends in an exception.

        That holds even if the server has answered. Once the call has ended, the server may refuse late copies of it.
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
        """Reserve items for the call with this number, and return the reserved ones.

        Other threads and tasks here don't claim them while the server is asked. With ``handed_over``, items that are claimed
        here are claimed again.
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
        """The lowest number of a running or later call."""
        with self.lock:
            return min(self._running, default=self._next_number)

    @property
    def _next_number(self) -> str:
        return f"{self._next:08x}"

    def give_up(self, digests: Iterable[bytes], number: str | None = None) -> None:
        """Note claims to release, because their answers did not reach the client; with ``number``, only that call's claims."""
        for digest in digests:
            claimed = self.claimed.get(digest)
            if claimed and number in (None, claimed):
                self.late.add(claimed)
                self.release_later({digest: claimed})
                self.claimed.pop(digest, None)

    def note_late_copies(self, digests: Iterable[bytes], number: str) -> None:
        """Note that a late copy of this call may claim the items that the session does not hold."""
        self.late.add(number)
        self.release_later({digest: number for digest in digests if digest not in self.claimed})

    def release_later(self, numbers: Mapping[bytes, str]) -> None:
        """Note claims to release. A release ends earlier claims of its item too, so the number of the latest call is kept."""
        for digest, number in numbers.items():
            self.to_release[digest] = max(number, self.to_release.get(digest, ""))

    def server_knows(self, least: str) -> None:
        """Forget late calls with lower numbers, because the server refuses them now."""
        self.late = {number for number in self.late if number >= least}

    def given_up(self, digests: Iterable[bytes]) -> dict[bytes, str]:
        """Return the items that were given up, with the numbers of their calls."""
        to_release = self.to_release
        # An item that is still claimed is not given up: its release has failed, and may be called again.
        given_up = [key for key in digests if key in to_release and key not in self.claimed]
        return {key: number for key in given_up if (number := to_release.get(key))}

    def end(self, numbers: Mapping[bytes, str]) -> None:
        """Forget claims that the server has ended. If a late copy may claim an item again, note it for another release."""
        for digest, number in numbers.items():
            if self.claimed.get(digest) == number:
                self.claimed.pop(digest, None)
            if number in self.late:
                self.release_later({digest: number})
            elif self.to_release.get(digest) == number:
                self.to_release.pop(digest, None)

    def hold(self, digests: Iterable[bytes]) -> None:
        """Hold claims that were noted for release."""
        for digest in digests:
            number = self.to_release.pop(digest, None)
            if number is not None:
                self.claimed[digest] = number

"""The filter for threads and processes."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import TYPE_CHECKING

import redis

from tbloom.bloom.base import Base
from tbloom.bloom.claims.heartbeat import beat_in_thread
from tbloom.bloom.claims.holdings import Claim
from tbloom.bloom.info import FilterInfo
from tbloom.engine.sync import SyncDriver
from tbloom.errors import TBloomError
from tbloom.items import Item

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from tbloom.bloom.base import Arguments


class TimeBloom(Base["redis.Redis | redis.RedisCluster"], SyncDriver):
    """A set of recently seen items, shared through Redis: a Bloom filter per time slice.

    Safe to use from many threads, and after a fork. Each verb may raise redis-py's errors,
    ``ConfigMismatch`` where the filter is stored with other parameters, and ``ConfigError``
    for an argument that can't be right, such as an empty item.
    """

    _OTHER = "AsyncTimeBloom"

    @classmethod
    def from_url(cls, url: str, name: str, **arguments: Unpack[Arguments]) -> Self:
        """A filter with a client of its own, closed by ``close()``; ``arguments`` as for the class.

        ``url`` is redis-py's; ``redis+cluster://host:port`` reaches a cluster by one of its nodes.
        A reply is waited for 2 seconds, unless the URL has another ``socket_timeout``. Where the
        connection fails, the call is sent again for 5 seconds (``retry_for``), and gets the first
        answer.
        """
        return cls._from_url(url, name, arguments)

    def __init__(
        self,
        client: redis.Redis | redis.RedisCluster,
        name: str,
        **arguments: Unpack[Arguments],
    ) -> None:
        super().__init__(client, name, **arguments)
        self._heart: threading.Thread | None = None
        self._stop_heart: Callable[[], object] = lambda: None
        self._meet_cluster()

    __init__.__doc__ = Base.__init__.__doc__

    def add(self, item: Item, within: int | None = None) -> bool:
        """True: the item is new, and remembered from now on. False: seen within the window.

        With ``within``, only the newest so many slices are asked.
        """
        return self._run(self._protocol.add(item, within), *self._guess(schedule=True, drop=False))

    def add_many(self, items: Iterable[Item], within: int | None = None) -> list[bool]:
        """``add`` for each item, in order; a repeat inside the call is False the second time."""
        items, guesses = self._guess_many(items, schedule=True, drop=False)
        return self._run(self._protocol.add_many(items, within), *guesses)

    def contains(self, item: Item, within: int | None = None) -> bool:
        """Has the item been seen within the window, or the newest ``within`` slices? Changes nothing."""
        return self._run(
            self._protocol.contains(item, within), *self._guess(schedule=False, drop=True)
        )

    def contains_many(self, items: Iterable[Item], within: int | None = None) -> list[bool]:
        """``contains`` for each item, in order."""
        items, guesses = self._guess_many(items, schedule=False, drop=True)
        return self._run(self._protocol.contains_many(items, within), *guesses)

    def __contains__(self, item: Item) -> bool:
        return self.contains(item)

    def claim(
        self, item: Item, within: int | None = None, note: str = "", giver: str = ""
    ) -> Claim:
        """``Claim.NEW``: the item is yours to work on; ``commit`` or ``release`` it in the end.

        ``Claim.SEEN``: it was committed, or added, within the window. ``Claim.BUSY``: somebody who
        is alive has claimed it, perhaps another thread of yours. A process that claims items gives
        signs of life from a thread of its own; once there was none for ``session_ttl`` seconds, what
        it has claimed may be claimed again. A ``note`` (at most 65,536 characters; the item, for
        example) is kept with the claim, for ``take_over``. What the session ``giver`` has claimed, and
        handed over with its work, is new too.
        """
        self._live()
        flow = self._protocol.claim(item, within, note, giver)
        return self._run(flow, *self._guess(schedule=Claim.NEW, drop=Claim.SEEN))

    def claim_many(
        self,
        items: Iterable[Item],
        within: int | None = None,
        notes: Iterable[str] | None = None,
        giver: str = "",
    ) -> list[Claim]:
        """``claim`` for each item, in order; one that is new is busy the second time."""
        self._live()
        items, guesses = self._guess_many(items, schedule=Claim.NEW, drop=Claim.SEEN)
        return self._run(self._protocol.claim_many(items, within, notes, giver), *guesses)

    def commit(self, item: Item) -> None:
        """The work on the item is done: it is seen from now on, whoever has claimed it.

        It is written into the current slice, also if it was seen in an older one. If this ends in an
        error of Redis', it is made up for with the next sign of life, until ``close``.
        """
        self._live()
        self._run(self._protocol.commit(item), *self._guess(schedule=None, drop=None))

    def commit_many(self, items: Iterable[Item]) -> None:
        """``commit`` for each item."""
        self._live()
        self._run(self._protocol.commit_many(items), *self._guess(schedule=None, drop=None))

    def release(self, item: Item) -> None:
        """The work on the item was not done: it is as if this object had never claimed it."""
        self._run(self._protocol.release(item), *self._guess(schedule=None, drop=None))

    def release_many(self, items: Iterable[Item]) -> None:
        """``release`` for each item."""
        self._run(self._protocol.release_many(items), *self._guess(schedule=None, drop=None))

    def abandon_many(self, items: Iterable[Item]) -> None:
        """As ``release_many``, but items with a note wait for somebody to ``take_over``."""
        self._run(self._protocol.abandon_many(items), *self._guess(schedule=None, drop=None))

    @contextmanager
    def claiming(self, item: Item, within: int | None = None) -> Iterator[bool]:
        """``with seen.claiming(item) as is_new:`` commits a new item at the end, or releases it on an exception."""
        is_new = self.claim(item, within) is Claim.NEW
        try:
            yield is_new
        except BaseException:
            if is_new:
                with suppress(redis.RedisError):  # it is made up for later
                    self.release(item)
            raise
        if is_new:
            try:
                self.commit(item)
            except TBloomError:  # it can't be committed
                self.release(item)
                raise

    def take_over(self, limit: int = 100, prefix: str = "") -> list[str]:
        """Claims what dead sessions have left behind with a note; returns these notes, at most ``limit``.

        With ``prefix``, only notes that begin so.

        Call it at the start and from time to time. Claims without a note are just free again.
        """
        self._live()
        return self._run(self._protocol.take_over(limit, prefix))

    def keys(self, at: datetime | None = None) -> list[str]:
        """The Redis keys of the slices that are live now, or ``at`` another time; oldest first."""
        return self._run(self._protocol.keys(at))

    def info(self, earlier: FilterInfo | None = None) -> FilterInfo:
        """What the filter holds, slice by slice. Takes about a millisecond per 4 MB of filter; with an
        ``earlier`` answer, per 4 MB of those slices that have changed since."""
        return self._run(self._protocol.info(earlier))

    def warnings(self) -> list[str]:
        """What threatens the filter, or has harmed it, a sentence each: a server that drops keys when its
        memory is full, and slices that it has dropped early."""
        return self._run(self._protocol.warnings())

    def clear(self) -> None:
        """Forgets everything, for everybody, also if it is stored with other parameters.

        At once; several shards one after another.
        """
        self._run(self._protocol.clear())

    def reconfigure(self) -> None:
        """Gives a stored filter this object's parameters, and keeps what it has seen.

        Capacity, error rate, hashes, bits, ``slices`` and ``grow`` may change so. Clients that still
        have the old parameters get ConfigMismatch from then on. Raises ConfigMismatch where
        granularity, time zone or shards differ: items are found by these.
        """
        self._run(self._protocol.reconfigure())

    def close(self) -> None:
        """Ends the session, so that what it claims is free, and closes the client, if ``from_url`` made it."""
        self._stop_heart()
        self._heart, self._retry_for = None, 0.0
        self.keep_connections()  # none from now on
        with suppress(redis.RedisError, TBloomError):  # else it ends by itself
            self._run(self._protocol.sessions.end())
        super().close()

    def _live(self) -> None:
        """Sees to it that the session gives signs of life."""
        if self._heart is None or not self._heart.is_alive():  # after a fork it is not
            closed, beat = threading.Event(), weakref.WeakMethod(self._beat)
            self._stop_heart = weakref.finalize(self, closed.set)
            arguments = (beat, closed, self._beat_seconds())
            self._heart = threading.Thread(target=beat_in_thread, args=arguments, daemon=True)
            self._heart.start()

    def _beat(self) -> None:
        if self._protocol.sessions.are_needed:
            self._run(self._protocol.sessions.beat())

"""The exact filter for threads and processes."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from tbloom.engine.sync import SyncDriver
from tbloom.exact.base import ExactBase
from tbloom.exact.info import ExactInfo
from tbloom.items import Item

if TYPE_CHECKING:
    import redis  # noqa: F401 - named in the class's bases
    from typing_extensions import Self, Unpack

    from tbloom.exact.base import ExactArguments


class ExactFilter(ExactBase["redis.Redis | redis.RedisCluster"], SyncDriver):
    """An exact set of items, shared through Redis, that remembers each for a time of its own.

    No item is taken for another one, and each expires to the millisecond by the server's clock. Later
    adds free its memory: each sweeps some expired entries, so that there is at most one for ten live
    ones. After a long time without adds, that state is reached by one object's next 30 adds, and one
    more for each 2,000 items in the filter (a batch counts as an add for each 150 items). Without any
    adds, the items' memory is freed when the last of them expires, and the few other keys after the same
    time again, at least an hour.
    Safe to use from many threads, and after a fork. Each verb may raise redis-py's errors,
    ``ConfigMismatch`` where the name is stored with other parameters, and ``ConfigError`` for an argument
    that can't be right, such as an empty item.
    """

    _OTHER = "AsyncExactFilter"

    @classmethod
    def from_url(cls, url: str, name: str, **arguments: Unpack[ExactArguments]) -> Self:
        """A filter with a client of its own, closed by ``close()``; see ``TimeBloom.from_url``."""
        return cls._from_url(url, name, arguments)

    def add(self, item: Item, ttl: float | timedelta | None = None) -> bool:
        """True: the item is new, and remembered for ``ttl`` from now on. False: it is remembered already, and its
        time stays as it was. (After an error, the first call may have added it, with its own ``ttl``.)

        :param ttl: seconds, or a ``timedelta``; None, the default: the filter's.
        """
        return self._run(self._protocol.add(item, ttl))

    def add_many(self, items: Iterable[Item], ttl: float | timedelta | None = None) -> list[bool]:
        """``add`` for each item, in order; a repeat within the call is seen."""
        return self._run(self._protocol.add_many(items, ttl))

    def contains(self, item: Item) -> bool:
        """Is the item remembered? Changes nothing."""
        return self._run(self._protocol.contains(item))

    def contains_many(self, items: Iterable[Item]) -> list[bool]:
        """``contains`` for each item, in order."""
        return self._run(self._protocol.contains_many(items))

    def discard(self, item: Item) -> bool:
        """Forgets the item, for all clients. True: it was remembered until now.

        A call that is sent again gets its first answer; one that is repeated after an error may return False.
        """
        return self._run(self._protocol.discard(item))

    def discard_many(self, items: Iterable[Item]) -> list[bool]:
        """``discard`` for each item, in order; a repeat within the call is False."""
        return self._run(self._protocol.discard_many(items))

    def expires(self, item: Item) -> datetime | None:
        """When the item will be forgotten (UTC); None: it is not remembered. Changes nothing."""
        return self._run(self._protocol.expires(item))

    def expires_many(self, items: Iterable[Item]) -> list[datetime | None]:
        """``expires`` for each item, in order."""
        return self._run(self._protocol.expires_many(items))

    def __contains__(self, item: Item) -> bool:
        return self.contains(item)

    def info(self) -> ExactInfo:
        """What the filter holds. Takes the server some 2 us a bucket, 100 buckets at a time."""
        return self._run(self._protocol.info())

    def warnings(self) -> list[str]:
        """What threatens the filter: a server that drops keys when its memory is full."""
        return self._run(self._protocol.warnings())

    def clear(self) -> None:
        """Forgets everything, for all clients, also if it is stored with other shards.

        A shard is cleared at once, then its memory is freed; shards follow one another. After an error, call
        it again.
        """
        self._run(self._protocol.clear())

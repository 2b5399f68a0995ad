"""The exact filter for threads and processes."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING

import redis

from tbloom.engine.sync import SyncDriver
from tbloom.exact.base import ExactBase
from tbloom.exact.info import ExactInfo
from tbloom.items import Item

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from tbloom.exact.base import ExactArguments


class ExactFilter(ExactBase["redis.Redis | redis.RedisCluster"], SyncDriver):
    """A set of items, shared through Redis, that remembers each for a time of its own: exactly.

    No item is ever taken for another one, and each expires to the millisecond, by the server's clock.
    Its memory is freed by the adds that follow: each sweeps some of the entries that have expired, so
    that for ten that have not there is at most one. After a long time without adds, that takes one
    object's next 30, and one more for each 2,000 items that were held (a batch is an add for each 150
    items). Without any adds, the items' memory goes with the last of them, and the few keys beside them
    after as long again, an hour at least.
    Safe to use from many threads, and after a fork. Each verb may raise redis-py's errors,
    ``ConfigMismatch`` where the name is stored with other parameters, and ``ConfigError`` for an argument
    that can't be right, such as an empty item.
    """

    _OTHER = "AsyncExactFilter"

    @classmethod
    def from_url(cls, url: str, name: str, **arguments: Unpack[ExactArguments]) -> Self:
        """A filter with a client of its own, closed by ``close()``; see ``TimeBloom.from_url``."""
        return cls._from_url(url, name, arguments)

    def __init__(
        self,
        client: redis.Redis | redis.RedisCluster,
        name: str,
        **arguments: Unpack[ExactArguments],
    ) -> None:
        super().__init__(client, name, **arguments)
        self._meet_cluster()

    __init__.__doc__ = ExactBase.__init__.__doc__

    def add(self, item: Item, ttl: float | timedelta | None = None) -> bool:
        """True: the item is new, and remembered for ``ttl`` from now on. False: it is remembered already,
        for as long as it was. (After an error, the first call may have been the one that counts, with its
        ``ttl``.)

        :param ttl: seconds, or a ``timedelta``; None, the default: the filter's.
        """
        return self._run(self._protocol.add(item, ttl), *self._guess(schedule=True, drop=False))

    def add_many(self, items: Iterable[Item], ttl: float | timedelta | None = None) -> list[bool]:
        """``add`` for each item, in order; one that comes twice is seen the second time."""
        items, guesses = self._guess_many(items, schedule=True, drop=False)
        return self._run(self._protocol.add_many(items, ttl), *guesses)

    def contains(self, item: Item) -> bool:
        """Is the item remembered? Changes nothing."""
        return self._run(self._protocol.contains(item), *self._guess(schedule=False, drop=True))

    def contains_many(self, items: Iterable[Item]) -> list[bool]:
        """``contains`` for each item, in order."""
        items, guesses = self._guess_many(items, schedule=False, drop=True)
        return self._run(self._protocol.contains_many(items), *guesses)

    def __contains__(self, item: Item) -> bool:
        return self.contains(item)

    def info(self) -> ExactInfo:
        """What the filter holds. Takes the server some 2 us a bucket, 100 buckets at a time."""
        return self._run(self._protocol.info())

    def warnings(self) -> list[str]:
        """What threatens the filter: a server that drops keys when its memory is full."""
        return self._run(self._protocol.warnings())

    def clear(self) -> None:
        """Forgets everything, for everybody, also if it is stored with other shards.

        At once, and then frees the memory; several shards one after another. If it ends in an error, call
        it again.
        """
        self._run(self._protocol.clear())

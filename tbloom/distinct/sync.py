"""The distinct counter for threads and processes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING

import redis

from tbloom.distinct.base import Counted, CounterBase
from tbloom.distinct.info import CounterInfo
from tbloom.distinct.selection import Selection, select, select_at
from tbloom.engine.sync import SyncDriver
from tbloom.items import Item

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from tbloom.distinct.base import CounterArguments


class Combined(Counted):
    """What counters and their slices have in common."""

    def count_and(self, *others: Counted) -> int:
        """How many members are counted here and in each of the others.

        Here as there, all live slices of a counter with slices; others of them by ``within`` and ``slice``. What is
        added, or cleared, while it counts may be missing.

        :param others: counters of the same mapping, or slices of such; they are looked for on this counter's server.
        """
        return self._count("and", self._with(others))

    def count_or(self, *others: Counted) -> int:
        """How many members are counted here or in any of the others; see ``count_and``."""
        return self._count("or", self._with(others))

    def count_xor(self, *others: Counted) -> int:
        """How many members are counted in an odd number of these; of two, in one and not in the other; see
        ``count_and``."""
        return self._count("xor", self._with(others))

    @abstractmethod
    def _count(self, operation: str, operands: list[Selection]) -> int:
        """Asks the server."""


class CounterSlices(Combined):
    """Some slices of a ``DistinctCounter``: see its ``within`` and ``slice``."""

    def __init__(self, counter: DistinctCounter, selection: Selection) -> None:
        self._counter = counter
        self._selection = selection

    def count(self) -> int:
        """How many distinct members these slices have together."""
        return self._count("or", [self._selection])

    def _count(self, operation: str, operands: list[Selection]) -> int:
        return self._counter._count(operation, operands)  # noqa: SLF001 - its own slices


class DistinctCounter(CounterBase["redis.Redis | redis.RedisCluster"], SyncDriver, Combined):
    """How many distinct members there are, exactly; and how many of them several counters share.

    A member gets a number, its id, from a mapping that counters share; a counter is a Roaring bitmap of ids: some 2
    bytes for each of few members, 8 KB for up to 65,536 of many. With ``granularity`` and ``slices`` it counts by
    hour, day, week or month, and forgets by itself; what the mapping has given an id to stays there.
    Safe to use from many threads, and after a fork. Each verb may raise redis-py's errors, ``ConfigMismatch`` where the
    name is stored with other parameters, and ``ConfigError`` for an argument that can't be right, such as an empty
    member.
    """

    _OTHER = "AsyncDistinctCounter"

    @classmethod
    def from_url(
        cls, url: str, name: str, mapping: str = "ids", **more: Unpack[CounterArguments]
    ) -> Self:
        """A counter with a client of its own, closed by ``close()``; see ``TimeBloom.from_url``."""
        return cls._from_url(url, name, {"mapping": mapping, **more})

    def __init__(
        self,
        client: redis.Redis | redis.RedisCluster,
        name: str,
        mapping: str = "ids",
        **more: Unpack[CounterArguments],
    ) -> None:
        super().__init__(client, name, mapping, **more)
        self._meet_cluster()

    __init__.__doc__ = CounterBase.__init__.__doc__

    def add(self, member: Item) -> bool:
        """Counts a member. True: it was not counted before (in the current slice, if there are slices)."""
        return self._run(self._protocol.add(member))

    def add_many(self, members: Iterable[Item]) -> list[bool]:
        """``add`` for each member, in order; one that comes twice is counted the first time."""
        return self._run(self._protocol.add_many(members))

    def count(self, within: int | None = None) -> int:
        """How many distinct members there are, in all live slices together.

        :param within: the newest so many slices only.
        """
        return self._count("or", [select(self.config, within)])

    def within(self, slices: int) -> CounterSlices:
        """The newest so many slices, to be counted and combined."""
        return CounterSlices(self, select(self.config, slices))

    def slice(self, at: datetime | str) -> CounterSlices:
        """The slice that the instant lies in (a datetime with a time zone), or that has this label, to be counted and
        combined. One that is not in the window counts 0."""
        return CounterSlices(self, select_at(self.config, at))

    def info(self) -> CounterInfo:
        """What the counter and its mapping hold. Takes the server some 2 us a bucket of the mapping (about 55 members),
        100 buckets at a time, and 3 us a chunk, those of a slice at a time."""
        return self._run(self._protocol.info())

    def warnings(self) -> list[str]:
        """What threatens the counter: a server that drops keys when its memory is full."""
        return self._run(self._protocol.warnings())

    def clear(self, *, mapping: bool = False) -> None:
        """Forgets what is counted, for everybody; at once, unless slices have more than 5,000 chunks together: then some
        of them after others. Ids stay: other counters may have counted them.

        :param mapping: True: forgets all counters of the mapping, one after another, and then its ids. If that ends in
            an error, call it again.
        """
        self._run(self._protocol.clear(mapping=mapping))

    def _count(self, operation: str, operands: list[Selection]) -> int:
        return self._run(self._protocol.count(operation, operands))

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
    """The counts of several operands."""

    def count_and(self, *others: Counted) -> int:
        """The number of members that are counted here and in each of the others.

        For a counter with slices, these are all live ones; ``within`` and ``slice`` choose some. What is added or cleared
        during the count may be missing.

        :param others: counters of the same mapping, or slices of them; they are read on this counter's server.
        """
        return self._count("and", self._with(others))

    def count_or(self, *others: Counted) -> int:
        """The number of members that are counted here or in any of the others; see ``count_and``."""
        return self._count("or", self._with(others))

    def count_xor(self, *others: Counted) -> int:
        """The number of members that are counted in an odd number of these: of two, in one and not in the other; see
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
        """The number of distinct members in these slices together."""
        return self._count("or", [self._selection])

    def _count(self, operation: str, operands: list[Selection]) -> int:
        return self._counter._count(operation, operands)  # noqa: SLF001 - its own slices


class DistinctCounter(CounterBase["redis.Redis | redis.RedisCluster"], SyncDriver, Combined):
    """An exact count of distinct members, and of the members that several counters have in common.

    A mapping, which counters share, gives each member a number, its id. A counter is a Roaring bitmap of ids: some 2
    bytes a member while they are few, at most 8 KB for each 65,536 ids. With ``granularity`` and ``slices`` it counts by
    hour, day, week or month, and forgets by itself; the ids stay in the mapping.
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
        """``add`` for each member, in order; a repeat within the call is not counted."""
        return self._run(self._protocol.add_many(members))

    def count(self, within: int | None = None) -> int:
        """The number of distinct members in all live slices together.

        :param within: the number of newest slices that are counted; None, the default: all.
        """
        return self._count("or", [select(self.config, within)])

    def within(self, slices: int) -> CounterSlices:
        """The newest ``slices`` slices, for counts of their own."""
        return CounterSlices(self, select(self.config, slices))

    def slice(self, at: datetime | str) -> CounterSlices:
        """The slice that contains the instant (a datetime with a time zone), or that has this label, for counts of its own.
        A slice outside the window counts 0."""
        return CounterSlices(self, select_at(self.config, at))

    def info(self) -> CounterInfo:
        """What the counter and its mapping hold. Takes the server some 2 us a bucket of the mapping (about 55 members),
        100 buckets a call, and 3 us a chunk, one slice a call."""
        return self._run(self._protocol.info())

    def warnings(self) -> list[str]:
        """What threatens the counter: a server that drops keys when its memory is full."""
        return self._run(self._protocol.warnings())

    def clear(self, *, mapping: bool = False) -> None:
        """Forgets what is counted, for all clients; at once, unless the slices have more than 5,000 chunks together: then
        one slice after another. The ids stay, because other counters may count them.

        :param mapping: True: forgets all counters of the mapping, one after another, and then its ids. After an error,
            call it again.
        """
        self._run(self._protocol.clear(mapping=mapping))

    def _count(self, operation: str, operands: list[Selection]) -> int:
        return self._run(self._protocol.count(operation, operands))

"""The distinct counter for threads and processes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tbloom.distinct.base import CounterBase
from tbloom.distinct.info import CounterInfo
from tbloom.distinct.selection import Selection, select
from tbloom.distinct.sets import Countable, MemberSet
from tbloom.engine.sync import SyncDriver
from tbloom.items import Item

if TYPE_CHECKING:
    import redis  # noqa: F401 - named in the class's bases
    from typing_extensions import Self, Unpack

    from tbloom.distinct.base import CounterArguments


class DistinctCounter(
    CounterBase["redis.Redis | redis.RedisCluster", MemberSet], SyncDriver, Countable[int]
):
    """An exact count of distinct members, and the sets of these members.

    A mapping, which counters share, gives each member a number, its id. A counter is a Roaring bitmap of ids: some 2
    bytes a member while they are few, at most 8 KB for each 65,536 ids. With ``granularity`` and ``slices`` it counts by
    hour, day, week or month, and forgets by itself; the ids stay in the mapping.
    Adding, ``contains`` and the count of one slice need nothing else; sets need pyroaring: ``pip install
    'tbloom[distinct]'``.
    Safe to use from many threads, and after a fork. Each verb may raise redis-py's errors, ``ConfigMismatch`` where the
    name is stored with other parameters, and ``ConfigError`` for an argument that can't be right, such as an empty
    member.
    """

    _OTHER = "AsyncDistinctCounter"

    @classmethod
    def from_url(
        cls, url: str, name: str, mapping: str | None = "ids", **more: Unpack[CounterArguments]
    ) -> Self:
        """A counter with a client of its own, closed by ``close()``; see ``TimeBloom.from_url``."""
        return cls._from_url(url, name, {"mapping": mapping, **more})

    def add(self, member: Item | int) -> bool:
        """Counts a member. True: it was not counted before (in the current slice, if there are slices)."""
        return self._run(self._protocol.add(member))

    def add_many(self, members: Iterable[Item] | Iterable[int]) -> list[bool]:
        """``add`` for each member, in order; a repeat within the call is not counted."""
        return self._run(self._protocol.add_many(members))

    def contains(self, member: Item | int) -> bool:
        """True if the member is counted in any live slice; ``in`` is the same."""
        return self._run(self._protocol.contains(member))

    __contains__ = contains

    def contains_many(self, members: Iterable[Item] | Iterable[int]) -> list[bool]:
        """``contains`` for each member, in order."""
        return self._run(self._protocol.contains_many(members))

    def discard(self, member: Item | int) -> bool:
        """Ends the counting of a member, in all live slices. True: it was counted."""
        return self._run(self._protocol.discard(member))

    def discard_many(self, members: Iterable[Item] | Iterable[int]) -> list[bool]:
        """``discard`` for each member, in order."""
        return self._run(self._protocol.discard_many(members))

    def count(self, within: int | None = None) -> int:
        """The number of distinct members in all live slices together.

        :param within: the number of newest slices that are counted; None, the default: all.
        """
        return self._set(select(self.config, within)).count()

    def from_roaring(self, data: bytes) -> None:
        """Counts the ids of a Roaring bitmap, in the portable format for 32 or 64 bits, in the current slice. With a mapping,
        its members must have these ids."""
        self._run(self._protocol.from_roaring(data))

    def info(self) -> CounterInfo:
        """What the counter and its mapping hold. Takes the server some 2 us a bucket of the mapping (about 55 members),
        100 buckets a call."""
        return self._run(self._protocol.info())

    def warnings(self) -> list[str]:
        """What threatens the counter: a server that drops keys when its memory is full."""
        return self._run(self._protocol.warnings())

    def clear(self, *, mapping: bool = False) -> None:
        """Forgets what is counted, for all clients, at once. The ids stay, because other counters may count them.

        :param mapping: True: forgets all counters of the mapping, one after another, and then its ids. After an error,
            call it again.
        """
        self._run(self._protocol.clear(mapping=mapping))

    def _set(self, selection: Selection) -> MemberSet:
        return MemberSet(self._protocol, self._run, selection)

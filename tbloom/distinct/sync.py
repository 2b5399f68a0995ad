"""The distinct counter for threads and processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tbloom.distinct.selection import Selection
from tbloom.distinct.sets import Countable, MemberSet
from tbloom.distinct.verbs import CounterVerbs
from tbloom.engine.sync import SyncDriver
from tbloom.items import Item

if TYPE_CHECKING:
    import redis  # noqa: F401 - named in the class's bases


class DistinctCounter(
    CounterVerbs["redis.Redis | redis.RedisCluster", MemberSet], SyncDriver, Countable
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

    def __contains__(self, member: Item) -> bool:
        return self.contains(member)

    def _set(self, selection: Selection) -> MemberSet:
        return MemberSet(self, selection)

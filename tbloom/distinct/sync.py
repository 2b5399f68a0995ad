"""The distinct counter and its sets, for threads and processes."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from tbloom.arguments import Item
from tbloom.distinct.sets import Countable, SetVerbs
from tbloom.distinct.verbs import CounterVerbs
from tbloom.engine.flow import Flow
from tbloom.engine.methods import SyncVerbs
from tbloom.engine.sync import SyncDriver

if TYPE_CHECKING:
    import redis  # noqa: F401 - named in the class's bases

T = TypeVar("T")


class MemberSet(SetVerbs, SyncVerbs):
    """A set of members of counters, or several such sets combined by ``|``, ``&``, ``-`` and ``^``.

    It compares as Python's sets do: ``==``, ``<=`` (a subset) and ``<``, ``isdisjoint``. Like them, it has no hash.
    Each verb reads what it needs; members that are added meanwhile may be missing. For many calls on one set, take its
    ``bitmap()``.
    The sets must belong to one mapping, or all to counters of integers. The client of the first one's counter reads them.
    """

    def run(self, flow: Flow[T]) -> T:
        """Run a flow by the set's counter, and return its result."""
        answer: T = self.counter.run(flow)
        return answer

    def __len__(self) -> int:
        return self.count()

    def __contains__(self, member: Item) -> bool:
        return self.contains(member)

    __hash__: ClassVar[None] = None  # type: ignore[assignment] # as a set's, because members come and go

    def __eq__(self, other: object) -> bool:
        return self._is(operator.eq, other) if isinstance(other, SetVerbs) else NotImplemented

    def __le__(self, other: SetVerbs) -> bool:
        return self._is(operator.le, other) if isinstance(other, SetVerbs) else NotImplemented

    def __lt__(self, other: SetVerbs) -> bool:
        return self._is(operator.lt, other) if isinstance(other, SetVerbs) else NotImplemented

    def _is(self, compare: Callable[[Any, Any], bool], other: SetVerbs) -> bool:
        return self.run(self._compared(compare, other))

    def pairs(self) -> Iterator[tuple[int, str | bytes | int]]:
        """Yield each id with its member, in no order. Each call reads a few thousand.

        The mapping needs ``keep_members``. Members in UTF-8 are ``str``. In counters of integers, each id is its member.
        """
        if self.counter.config.mapping is None:
            yield from ((number, number) for number in self.bitmap())
            return
        pages = self.run(self._pages())
        while (page := self.run(pages.read())) is not None:
            yield from page

    def __iter__(self) -> Iterator[str | bytes | int]:
        """Yield the members; see ``pairs``."""
        return (member for _, member in self.pairs())


class DistinctCounter(
    CounterVerbs["redis.Redis | redis.RedisCluster", MemberSet], SyncDriver, Countable
):
    """An exact count of distinct members, and the sets of these members.

    A mapping, which counters share, gives each member a number, its id. A counter is a Roaring bitmap of ids: some 2
    bytes a member while they are few, at most 8 KB for each 65,536 ids. With ``granularity`` and ``slices`` it counts by
    hour, day, week or month, and forgets by itself; the ids stay in the mapping.
    Adding, ``contains`` and the count of one slice need nothing else; sets need pyroaring: ``pip install
    'tbloom[distinct]'``.
    Safe to use from many threads, and after a fork. Each verb may raise redis-py's errors, ``ConfigMismatch`` if the
    name is stored with other parameters, and ``ConfigError`` for an argument that can't be right, such as an empty
    member.
    """

    _SETS = MemberSet
    _OTHER = "AsyncDistinctCounter"

    def __contains__(self, member: Item) -> bool:
        return self.contains(member)

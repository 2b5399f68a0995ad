"""Sets of members: expressions over the slices of counters, read from the server when they are asked."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterator, Awaitable, Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tbloom.distinct import algebra
from tbloom.distinct.algebra import Expression, combine
from tbloom.distinct.members import MemberPages, generation_of
from tbloom.distinct.protocol import CountProtocol
from tbloom.distinct.roaring import bitmaps, exported
from tbloom.engine.flow import Flow
from tbloom.errors import ConfigError
from tbloom.items import Item

if TYPE_CHECKING:
    from pyroaring import BitMap
    from typing_extensions import Self

T = TypeVar("T")
#: ``int``, or what is awaited for it.
Number = TypeVar("Number")


class Countable(Generic[Number]):
    """An operand of a count: a set, or a counter, which stands for all its members."""

    @abstractmethod
    def members(self) -> SetBase[Number]:
        """The set of all members, of all live slices; to be combined, counted, listed, exported."""

    def count_and(self, *others: Countable[Any]) -> Number:
        """The number of members that are counted here and in each of the others.

        :param others: counters of the same mapping, or sets of their members; they are read on this counter's server.
        """
        return self._with("intersection", others).count()

    def count_or(self, *others: Countable[Any]) -> Number:
        """The number of members that are counted here or in any of the others; see ``count_and``."""
        return self._with("union", others).count()

    def count_xor(self, *others: Countable[Any]) -> Number:
        """The number of members that are counted in an odd number of these: of two, in one and not in the other; see
        ``count_and``."""
        return self._with("symmetric_difference", others).count()

    def count_andnot(self, *others: Countable[Any]) -> Number:
        """The number of members that are counted here and in none of the others; see ``count_and``."""
        return self._with("difference", others).count()

    def _with(self, operation: str, others: tuple[Countable[Any], ...]) -> SetBase[Number]:
        """The set of this one's members combined with those of the others."""
        combined = self.members()
        for i, other in enumerate(others):
            if not isinstance(other, Countable):
                raise ConfigError(f"others[{i}]", other, "a distinct counter, or a set of members")
            combined = combined.combined(operation, other.members(), f"others[{i}]")
        return combined


class SetBase(Countable[Number]):
    """What both classes of sets share: their expressions, and their verbs as flows."""

    def __init__(self, protocol: CountProtocol, driver: Any, expression: Expression) -> None:
        """``driver``: what runs a flow."""
        self._protocol, self._driver, self._expression = protocol, driver, expression

    @abstractmethod
    def count(self) -> Number:
        """The number of distinct members."""

    def members(self) -> Self:
        """The set itself."""
        return self

    def combined(self, operation: str, other: SetBase[Any], argument: str = "set") -> Self:
        """The set combined with another one (see ``Combination``); ``argument`` names it in errors."""
        expression = combine(operation, self._expression, self._checked(other, argument))
        return type(self)(self._protocol, self._driver, expression)

    def __or__(self, other: SetBase[Any]) -> Self:
        return self.combined("union", other) if isinstance(other, SetBase) else NotImplemented

    def __and__(self, other: SetBase[Any]) -> Self:
        return (
            self.combined("intersection", other) if isinstance(other, SetBase) else NotImplemented
        )

    def __sub__(self, other: SetBase[Any]) -> Self:
        return self.combined("difference", other) if isinstance(other, SetBase) else NotImplemented

    def __xor__(self, other: SetBase[Any]) -> Self:
        return (
            self.combined("symmetric_difference", other)
            if isinstance(other, SetBase)
            else NotImplemented
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._expression}>"

    def _checked(self, other: SetBase[Any], argument: str) -> Expression:
        """The other set's expression, if it can be combined with this one's."""
        if not isinstance(other, SetBase):
            raise ConfigError(argument, other, "a set of members")
        ours, theirs = self._protocol.config.mapping, other._protocol.config.mapping
        if ours != theirs:
            kind = f"of the same mapping, {ours!r}" if ours is not None else "of integers"
            raise ConfigError(argument, other, f"a set of a counter {kind}")
        return other._expression

    def _counting(self) -> Flow[int]:
        return algebra.count(self._protocol.reader, self._expression)

    def _evaluated(self) -> Flow[BitMap]:
        [ids] = yield from algebra.evaluate(self._protocol.reader, self._expression)
        return ids

    def _copied(self) -> Flow[BitMap]:
        return bitmaps()((yield from self._evaluated()))

    def _export(self, bits: int) -> Flow[bytes]:
        return exported((yield from self._evaluated()), bits)

    def _having(self, member: Item | int) -> Flow[bool]:
        generation, ids = yield from self._of_generation()
        number = yield from self._protocol.id_of(member, generation)
        return number is not None and number in ids

    def _compared(self, other: SetBase[Any]) -> Flow[tuple[BitMap, BitMap]]:
        expressions = self._expression, self._checked(other, "other")
        left, right = yield from algebra.evaluate(self._protocol.reader, *expressions)
        return left, right

    def _disjoint(self, other: SetBase[Any]) -> Flow[bool]:
        left, right = yield from self._compared(other)
        return left.isdisjoint(right)

    def _within(self, other: SetBase[Any]) -> Flow[bool]:
        left, right = yield from self._compared(other)
        return left.issubset(right)

    def _jaccard(self, other: SetBase[Any]) -> Flow[float]:
        left, right = yield from self._compared(other)
        return left.jaccard_index(right) if left or right else 1.0

    def _pages(self) -> Flow[MemberPages]:
        generation, ids = yield from self._of_generation()
        return MemberPages(self._protocol.config, generation, bitmaps()(ids))

    def _of_generation(self) -> Flow[tuple[str, BitMap]]:
        """The ids, and the generation of the mapping before they were read: as long as it is the same, they mean the same
        members."""
        generation = yield from generation_of(self._protocol.config)
        return generation, (yield from self._evaluated())


class MemberSet(SetBase[int]):
    """A set of members of counters, or several such sets combined by ``|``, ``&``, ``-`` and ``^``.

    A verb reads what it needs in a few commands, and keeps it: the next verb asks only for what has changed. What is
    added meanwhile may be missing. The sets must be of one mapping, or all of counters of integers; they are read by the
    client of the first one's counter.
    """

    def count(self) -> int:
        """The number of distinct members; ``len()`` is the same."""
        return self._run(self._counting())

    __len__ = count

    def contains(self, member: Item | int) -> bool:
        """True if the member is in the set; ``in`` is the same. For counters of integers, an integer."""
        return self._run(self._having(member))

    __contains__ = contains

    def isdisjoint(self, other: MemberSet) -> bool:
        """True if the sets have no member in common."""
        return self._run(self._disjoint(other))

    def issubset(self, other: MemberSet) -> bool:
        """True if all members are in the other set."""
        return self._run(self._within(other))

    def jaccard(self, other: MemberSet) -> float:
        """The members that both have, as a share of those that either has; 1.0 for two empty sets."""
        return self._run(self._jaccard(other))

    def bitmap(self) -> BitMap:
        """The ids, as pyroaring's ``BitMap``, which is the caller's."""
        return self._run(self._copied())

    def to_roaring(self, bits: int = 32) -> bytes:
        """The ids in Roaring's portable format, which libraries for Java, Go, C, Rust, Node, ClickHouse and Spark read.

        :param bits: 32, or 64 for readers of 64-bit bitmaps (``Roaring64NavigableMap`` in its portable mode, for example).
        """
        return self._run(self._export(bits))

    def ids(self) -> Iterator[int]:
        """The ids in order."""
        return iter(self.bitmap())

    def __iter__(self) -> Iterator[Item | int]:
        """The members, in no order, read a few thousand at a time: for a mapping with ``keep_members``. (``str`` for those
        that are UTF-8.) Of counters of integers, the ids."""
        if self._protocol.config.mapping is None:
            yield from self.ids()
            return
        pages = self._run(self._pages())
        while (page := self._run(pages.read())) is not None:
            yield from page

    def _run(self, flow: Flow[T]) -> T:
        answer: T = self._driver(flow)
        return answer


class AsyncMemberSet(SetBase[Awaitable[int]]):
    """``MemberSet`` for asyncio: the same verbs, awaited."""

    async def count(self) -> int:
        """See ``MemberSet.count``."""
        return await self._run(self._counting())

    async def contains(self, member: Item | int) -> bool:
        """See ``MemberSet.contains``."""
        return await self._run(self._having(member))

    async def isdisjoint(self, other: AsyncMemberSet) -> bool:
        """See ``MemberSet.isdisjoint``."""
        return await self._run(self._disjoint(other))

    async def issubset(self, other: AsyncMemberSet) -> bool:
        """See ``MemberSet.issubset``."""
        return await self._run(self._within(other))

    async def jaccard(self, other: AsyncMemberSet) -> float:
        """See ``MemberSet.jaccard``."""
        return await self._run(self._jaccard(other))

    async def bitmap(self) -> BitMap:
        """See ``MemberSet.bitmap``."""
        return await self._run(self._copied())

    async def to_roaring(self, bits: int = 32) -> bytes:
        """See ``MemberSet.to_roaring``."""
        return await self._run(self._export(bits))

    async def ids(self) -> AsyncIterator[int]:
        """See ``MemberSet.ids``."""
        for number in await self.bitmap():
            yield number

    async def __aiter__(self) -> AsyncIterator[Item | int]:
        """The members, or the integers: see ``MemberSet``."""
        if self._protocol.config.mapping is None:
            for number in await self.bitmap():
                yield number
            return
        pages = await self._run(self._pages())
        while (page := await self._run(pages.read())) is not None:
            for member in page:
                yield member

    async def _run(self, flow: Flow[T]) -> T:
        answer: T = await self._driver(flow)
        return answer

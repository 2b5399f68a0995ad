"""Sets of members: expressions over the slices of counters, read from the server when they are asked."""

from __future__ import annotations

import operator
from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Self

from tbloom.arguments import Item
from tbloom.distinct.config import CounterConfig
from tbloom.distinct.members import MemberPages, id_of
from tbloom.distinct.reading import Found, Reader, Selection
from tbloom.distinct.roaring import bitmaps
from tbloom.engine.client import Store
from tbloom.engine.flow import Flow
from tbloom.engine.methods import verb
from tbloom.errors import ConfigError

if TYPE_CHECKING:
    from pyroaring import BitMap
else:
    BitMap = Any  # pyroaring is optional


#: Selections, and behind each two of them the method of pyroaring's ``BitMap`` that combines them (reverse Polish notation, because
#: a chain of operators may be longer than Python's stack).
Expression = tuple[Selection | str, ...]


class Countable:
    """An operand of a count: a set, or a counter, which stands for all its members."""

    @abstractmethod
    def members(self) -> SetVerbs:
        """Return the set of the members of all live slices."""

    @verb
    def count_and(self, *others: Countable) -> Flow[int]:
        """Return the number of members that are counted here and in each of the others.

        :param others: counters of the same mapping, or sets of their members; they are read on this counter's server.
        """
        return SetVerbs.count.flow(combination("intersection", self, others))

    @verb
    def count_or(self, *others: Countable) -> Flow[int]:
        """Return the number of members that are counted here or in any of the others; see ``count_and``."""
        return SetVerbs.count.flow(combination("union", self, others))

    @verb
    def count_xor(self, *others: Countable) -> Flow[int]:
        """Return the number of members that an odd number of these count; of two: that exactly one counts. See ``count_and``."""
        return SetVerbs.count.flow(combination("symmetric_difference", self, others))

    @verb
    def count_andnot(self, *others: Countable) -> Flow[int]:
        """Return the number of members that are counted here and in none of the others; see ``count_and``."""
        return SetVerbs.count.flow(combination("difference", self, others))


class SetVerbs(Countable):
    """The common base of both classes of sets."""

    def __init__(
        self, counter: Store[Any, CounterConfig], reader: Reader, expression: Expression
    ) -> None:
        #: The counter that reads the set.
        self.counter: Store[Any, CounterConfig] = counter
        self._reader = reader
        self.expression = expression

    def members(self) -> Self:
        """Return the set itself."""
        return self

    @verb
    def count(self) -> Flow[int]:
        """Return the number of distinct members."""
        match self.expression:
            case (Selection() as selection,):
                return (yield from self._reader.count(selection))
        return len((yield from self._evaluated()))

    @verb
    def contains(self, member: Item) -> Flow[bool]:
        """Return whether the member is in the set. In counters of integers, members are integers."""
        generation, ids = yield from self._of_generation()
        number = yield from id_of(self.counter.config, generation, member)
        return number is not None and number in ids

    @verb
    def isdisjoint(self, other: Countable) -> Flow[bool]:
        """Return whether no member is in both sets. The other one may be a counter; see ``count_and``."""
        return self._compared(lambda ours, theirs: ours.isdisjoint(theirs), other)

    @verb
    def issubset(self, other: Countable) -> Flow[bool]:
        """Return whether the other set, or counter, has all members of this one; see ``count_and``."""
        return self._compared(operator.le, other)

    @verb
    def bitmap(self) -> Flow[BitMap]:
        """Return a copy of the ids as pyroaring's ``BitMap``, which also has ``min``, ``max``, ``rank`` and ``jaccard_index``."""
        return self._evaluated()

    @verb
    def to_roaring(self) -> Flow[bytes]:
        """Return the ids in Roaring's portable format, which its libraries for Java, Go, C, Rust and Node read."""
        return bytes((yield from self._evaluated()).serialize())

    def combined(self, operation: str, other: SetVerbs, argument: str = "set") -> Self:
        """Return the set combined with another one by a method of ``BitMap``. Errors name the other one ``argument``."""
        ours, theirs = self.counter.config, other.counter.config
        if ours.mapping != theirs.mapping or ours.prefix != theirs.prefix:
            kind = "integers" if ours.mapping is None else f"the same mapping, {ours.mapping!r}"
            if ours.prefix != theirs.prefix:
                kind += f", with the prefix {ours.prefix!r}"
            raise ConfigError(argument, other, f"a set of a counter of {kind}")
        expression = (*self.expression, *other.expression, operation)
        return type(self)(self.counter, self._reader, expression)

    def __or__(self, other: SetVerbs) -> Self:
        return self._operated("union", other)

    def __and__(self, other: SetVerbs) -> Self:
        return self._operated("intersection", other)

    def __sub__(self, other: SetVerbs) -> Self:
        return self._operated("difference", other)

    def __xor__(self, other: SetVerbs) -> Self:
        return self._operated("symmetric_difference", other)

    def _operated(self, operation: str, other: object) -> Self:
        return self.combined(operation, other) if isinstance(other, SetVerbs) else NotImplemented

    def _compared(self, compare: Callable[[BitMap, BitMap], bool], other: Countable) -> Flow[bool]:
        """Compare this set with another one. Both are read at once."""
        both = combination("union", self, [other])
        found = yield from self._reader.read(_selections_of(both.expression))
        theirs = other.members().expression
        return compare(_value(self.expression, found), _value(theirs, found))

    def _evaluated(self) -> Flow[BitMap]:
        _, ids = yield from self._of_generation()
        return ids

    def _pages(self) -> Flow[MemberPages]:
        generation, ids = yield from self._of_generation()
        return MemberPages(self.counter.config, generation, ids)

    def _of_generation(self) -> Flow[tuple[str, BitMap]]:
        """Return the mapping's generation, and the ids, which mean the same members as long as the mapping keeps this generation."""
        found = yield from self._reader.read(_selections_of(self.expression))
        mapping, *_ = (stored.mapping for stored in found.stored.values())  # all of one
        return mapping, _value(self.expression, found)


def combination(operation: str, first: Countable, others: Iterable[Countable]) -> SetVerbs:
    """Return the set of the first one's members combined with those of the others."""
    combined = first.members()
    for i, other in enumerate(others):
        if not isinstance(other, Countable):
            raise ConfigError(f"others[{i}]", other, "a distinct counter, or a set of members")
        combined = combined.combined(operation, other.members(), f"others[{i}]")
    return combined


def _selections_of(expression: Expression) -> list[Selection]:
    return [each for each in expression if isinstance(each, Selection)]


def _value(expression: Expression, found: Found) -> BitMap:
    values = list[BitMap]()
    for each in expression:
        if isinstance(each, Selection):
            values.append(found.ids_of(each))
        else:
            other = values.pop()
            values[-1] = getattr(bitmaps(), each)(values[-1], other)
    return values.pop()

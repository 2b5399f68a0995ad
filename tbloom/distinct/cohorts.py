"""Retention and funnels: how many members come back in later slices, and how many go on from counter to counter."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, overload

from tbloom.distinct.aio import AsyncDistinctCounter, AsyncMemberSet
from tbloom.distinct.roaring import bitmaps
from tbloom.distinct.selection import select
from tbloom.distinct.sets import Countable, combination, evaluate
from tbloom.distinct.sync import DistinctCounter, MemberSet
from tbloom.errors import ConfigError

if TYPE_CHECKING:
    from tbloom.distinct.config import CounterConfig
    from tbloom.distinct.reading import Reader
    from tbloom.engine.flow import Flow


@dataclass(frozen=True, slots=True)
class Cohort:
    """The members that a slice has and no earlier one of the table."""

    label: str
    #: Their number; and how many of them each later slice has.
    size: int
    returned: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Retention:
    """A counter's cohorts, oldest first. In the oldest slice all members are new."""

    name: str
    granularity: str
    cohorts: tuple[Cohort, ...]


@overload
def retention(counter: DistinctCounter, slices: int | None = None) -> Retention: ...
@overload
def retention(counter: AsyncDistinctCounter, slices: int | None = None) -> Awaitable[Retention]: ...
def retention(counter: Any, slices: int | None = None) -> Any:
    """How many of the members that were new in a slice came back in each later one; to be awaited for an
    ``AsyncDistinctCounter``.

    :param counter: a counter with slices.
    :param slices: the number of newest slices in the table; None: all.
    """
    if not isinstance(counter, DistinctCounter | AsyncDistinctCounter):
        raise ConfigError("counter", counter, "a distinct counter")
    return counter.run(_retention(counter.config, counter.reader, slices))


@overload
def funnel(first: DistinctCounter | MemberSet, *others: Countable) -> list[int]: ...
@overload
def funnel(
    first: AsyncDistinctCounter | AsyncMemberSet, *others: Countable
) -> Awaitable[list[int]]: ...
def funnel(first: Any, *others: Countable) -> Any:
    """How many members the first set has, how many of them the second one has too, how many of these the third, and so on;
    to be awaited for sets of an ``AsyncDistinctCounter``. When a member was counted where makes no difference.

    :param first: a counter, or a set of members.
    :param others: counters of the same mapping, or sets of their members.
    """
    if not isinstance(first, Countable):
        raise ConfigError("first", first, "a distinct counter, or a set of members")
    numbers = range(len(others) + 1)
    steps: list[Any] = [combination("intersection", first, others[:i]) for i in numbers]
    return steps[0].run(_sizes(steps))


def _sizes(sets: list[Any]) -> Flow[list[int]]:
    reader, expressions = sets[0].counter.reader, [one.expression for one in sets]
    return [*map(len, (yield from evaluate(reader, *expressions)))]


def _retention(config: CounterConfig, reader: Reader, slices: int | None) -> Flow[Retention]:
    newest = select(config, slices)
    if config.window is None:
        raise ConfigError("counter", config.name, "one with slices (see granularity)")
    found = yield from reader.by_slice(newest)
    seen, cohorts, later = bitmaps()(), [], [*found.values()]
    for label, ids in found.items():
        new = ids - seen
        del later[0]
        returned = tuple(map(new.intersection_cardinality, later))
        cohorts.append(Cohort(label, len(new), returned))
        seen |= new
    return Retention(config.name, str(config.window.granularity), tuple(cohorts))

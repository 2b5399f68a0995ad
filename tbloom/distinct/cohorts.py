"""Retention and funnels: how many members come back in later slices, and how many go on from counter to counter."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from operator import and_

from tbloom.distinct.roaring import bitmaps
from tbloom.distinct.selection import select
from tbloom.distinct.sets import combination
from tbloom.distinct.sync import DistinctCounter, MemberSet
from tbloom.errors import ConfigError


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


def retention(counter: DistinctCounter, slices: int | None = None) -> Retention:
    """How many of the members that were new in a slice came back in each later one.

    :param counter: a counter with slices.
    :param slices: the number of newest slices in the table; None: all.
    """
    if not isinstance(counter, DistinctCounter) or counter.config.window is None:
        raise ConfigError("counter", counter, "a DistinctCounter with slices (see granularity)")
    newest = select(counter.config, slices)
    found = counter.run(counter.reader.read([newest]))
    by_slice = {label: found.union(heads) for label, heads in found.slices[newest].items()}
    seen, cohorts, later = bitmaps()(), [], [*by_slice.values()]
    for label, ids in by_slice.items():
        new = ids - seen
        del later[0]
        returned = tuple(map(new.intersection_cardinality, later))
        cohorts.append(Cohort(label, len(new), returned))
        seen |= new
    granularity = str(counter.config.window.granularity)
    return Retention(counter.name, granularity, tuple(cohorts))


def funnel(first: DistinctCounter | MemberSet, *others: DistinctCounter | MemberSet) -> list[int]:
    """How many members the first set has, how many of them the second one has too, how many of these the third, and so on.
    When a member was counted where makes no difference.

    :param first: a counter, or a set of members.
    :param others: counters of the same mapping, or sets of their members.
    """
    if not isinstance(first, DistinctCounter | MemberSet):
        raise ConfigError("first", first, "a DistinctCounter, or a set of its members")
    combination("intersection", first, others)  # raises an error if they can't be combined
    steps = [one.members().bitmap() for one in (first, *others)]
    return [*map(len, accumulate(steps, and_))]

"""Distinct counters: exact counts of members, and sets of them."""

from tbloom.distinct.aio import AsyncDistinctCounter
from tbloom.distinct.cohorts import Cohort, Retention, funnel, retention
from tbloom.distinct.info import CountedSlice, CounterInfo
from tbloom.distinct.sets import AsyncMemberSet, MemberSet
from tbloom.distinct.sync import DistinctCounter

__all__ = [
    "AsyncDistinctCounter",
    "AsyncMemberSet",
    "Cohort",
    "CountedSlice",
    "CounterInfo",
    "DistinctCounter",
    "MemberSet",
    "Retention",
    "funnel",
    "retention",
]

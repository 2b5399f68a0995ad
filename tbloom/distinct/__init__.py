"""Distinct counters: exact counts of members, and sets of them."""

from tbloom.distinct.aio import AsyncDistinctCounter, AsyncMemberSet
from tbloom.distinct.cohorts import Cohort, Retention, funnel, retention
from tbloom.distinct.info import CountedSlice, CounterInfo
from tbloom.distinct.sync import DistinctCounter, MemberSet

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

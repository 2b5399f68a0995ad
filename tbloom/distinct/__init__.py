"""Distinct counters: exact counts of members, and sets of them."""

from tbloom.distinct.aio import AsyncDistinctCounter, AsyncMemberSet
from tbloom.distinct.info import CountedSlice, CounterInfo
from tbloom.distinct.sync import DistinctCounter, MemberSet
from tbloom.errors import MappingFull

__all__ = [
    "AsyncDistinctCounter",
    "AsyncMemberSet",
    "CountedSlice",
    "CounterInfo",
    "DistinctCounter",
    "MappingFull",
    "MemberSet",
]

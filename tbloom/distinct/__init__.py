"""Distinct counters: exact counts of members, and of those that several counters have in common."""

from tbloom.distinct.aio import AsyncCounterSlices, AsyncDistinctCounter
from tbloom.distinct.info import CountedSlice, CounterInfo
from tbloom.distinct.sync import CounterSlices, DistinctCounter

__all__ = [
    "AsyncCounterSlices",
    "AsyncDistinctCounter",
    "CountedSlice",
    "CounterInfo",
    "CounterSlices",
    "DistinctCounter",
]

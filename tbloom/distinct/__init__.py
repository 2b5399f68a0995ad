"""Exact distinct counts: how many members, and how many of them two counters share."""

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

"""Stores with awaitable verbs, so that one test body runs on both classes; what is missing on a machine."""

from __future__ import annotations

import os
from typing import Any

import pytest
import redis

from tbloom import TimeBloom
from tbloom.exact import ExactFilter

#: Where redis-py lets connections be kept from call to call.
needs_kept = pytest.mark.skipif(
    not hasattr(redis.Connection, "should_reconnect"), reason="redis-py is older than 7"
)
IN_CI = os.environ.get("CI") == "true"


def missing(what: str) -> None:
    """A part that a test needs is not on this machine: in CI that is a failure."""
    if IN_CI:
        pytest.fail(f"{what} is missing, and CI must have it")
    pytest.skip(f"{what} is missing")


Make = Any  # what the fixture `make` is


class Awaited:
    """TimeBloom, or ExactFilter, with awaitable verbs, so that one test body runs on both classes."""

    def __init__(self, seen: TimeBloom | ExactFilter) -> None:
        self._seen = seen

    def __getattr__(self, verb: str) -> Any:
        async def awaited(*args: Any, **kwargs: Any) -> Any:
            return getattr(self._seen, verb)(*args, **kwargs)

        return awaited


class AwaitedCounter:
    """A DistinctCounter, or slices of one, with awaitable verbs; slices are had without waiting."""

    def __init__(self, counted: Any) -> None:
        self._counted = counted

    def within(self, slices: Any) -> AwaitedCounter:
        return AwaitedCounter(self._counted.within(slices))

    def slice(self, at: Any) -> AwaitedCounter:
        return AwaitedCounter(self._counted.slice(at))

    def __getattr__(self, verb: str) -> Any:
        async def awaited(*args: Any, **kwargs: Any) -> Any:
            others = [getattr(arg, "_counted", arg) for arg in args]
            return getattr(self._counted, verb)(*others, **kwargs)

        return awaited

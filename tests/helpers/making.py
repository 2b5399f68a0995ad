"""Stores with awaitable verbs, so that one test body runs on both classes; what is missing on a machine."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis

from tbloom import TimeBloom
from tbloom.distinct import DistinctCounter
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


def made_once(
    tmp_path_factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]
) -> Path:
    """A folder that one worker of this run has made, and that all use."""
    root = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent
    folder, done = root / name, root / f"{name}.done"
    with (root / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)  # of one that failed
            folder.mkdir()
            make(folder)
            done.touch()
    return folder


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
    """A DistinctCounter, or a set of its members, with awaitable verbs; sets are had without waiting."""

    def __init__(self, counted: Any) -> None:
        self._counted = counted

    def __getattr__(self, verb: str) -> Any:
        def direct(*args: Any) -> Any:
            return AwaitedCounter(getattr(self._counted, verb)(*args))

        async def awaited(*args: Any, **kwargs: Any) -> Any:
            others = [getattr(arg, "_counted", arg) for arg in args]
            return getattr(self._counted, verb)(*others, **kwargs)

        return direct if verb in ("members", "everyone", "within", "slice", "between") else awaited

    def __or__(self, other: AwaitedCounter) -> AwaitedCounter:
        return AwaitedCounter(self._counted | other._counted)

    def __and__(self, other: AwaitedCounter) -> AwaitedCounter:
        return AwaitedCounter(self._counted & other._counted)

    def __sub__(self, other: AwaitedCounter) -> AwaitedCounter:
        return AwaitedCounter(self._counted - other._counted)

    def __xor__(self, other: AwaitedCounter) -> AwaitedCounter:
        return AwaitedCounter(self._counted ^ other._counted)

    async def __aiter__(self) -> Any:
        for member in self._counted:
            yield member

    async def pairs(self) -> Any:
        for pair in self._counted.pairs():
            yield pair


def awaited(seen: Any) -> Any:
    """A store with awaitable verbs."""
    return AwaitedCounter(seen) if isinstance(seen, DistinctCounter) else Awaited(seen)


def session_of(seen: Any) -> str:
    """The session of a filter whose verbs are awaited."""
    session: str = (seen._seen if hasattr(seen, "_seen") else seen).session
    return session

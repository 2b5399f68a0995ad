"""What users' programs do with tbloom's classes; `make lint` lets mypy and pyright check it. It is not run."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from datetime import datetime
from typing import Any, Protocol, assert_type

import redis

from tbloom import (
    AsyncExactFilter,
    AsyncTimeBloom,
    Claim,
    ExactFilter,
    FilterInfo,
    LocalBloom,
    Period,
    TimeBloom,
)
from tbloom.distinct import AsyncDistinctCounter, AsyncMemberSet, DistinctCounter, MemberSet


class Adds(Protocol):
    """What users' code asks of a filter (mypy#5481)."""

    def add(self, item: str) -> bool: ...
    def contains_many(self, items: list[str]) -> list[bool]: ...


class AddsLater(Protocol):
    async def add(self, item: str) -> bool: ...
    async def contains_many(self, items: list[str]) -> list[bool]: ...


class Counts(Protocol):
    def count(self) -> int: ...


def use(seen: Adds) -> bool:
    return seen.add("a")


async def use_later(seen: AddsLater) -> bool:
    return await seen.add("a")


def use_count(counted: Counts) -> int:
    return counted.count()


use(TimeBloom(redis.Redis(), "news"))
use(ExactFilter.from_url("redis://localhost", "news"))
use(LocalBloom(path="news.tbloom", readonly=True))
use(AsyncTimeBloom.from_url("redis://localhost", "news"))  # type: ignore[arg-type]


async def later() -> None:
    await use_later(AsyncTimeBloom.from_url("redis://localhost", "news"))
    await use_later(AsyncExactFilter.from_url("redis://localhost", "news"))
    await use_later(LocalBloom())  # type: ignore[arg-type]


class Loud(TimeBloom):
    def add(
        self,
        item: str | bytes | bytearray | memoryview | int,
        within: int | None = None,
        keep: int | None = None,
    ) -> bool:
        return super().add(item, within, keep)

    def contains(self, item: str) -> bool:  # type: ignore[override]
        return super().contains(item)


class LoudLater(AsyncExactFilter):
    async def discard(self, item: str | bytes | bytearray | memoryview | int) -> bool:
        return await super().discard(item)


class LoudLocal(LocalBloom):
    def contains_many(self, items: Any, within: int | None = None) -> list[bool]:
        return super().contains_many(items, within)


use(Loud.open("redis://localhost", "news"))


def answers(seen: TimeBloom, exact: ExactFilter, local: LocalBloom) -> None:
    assert_type("a" in seen, bool)
    assert_type(seen.add_many(["a", b"b", 3, bytearray(b"c"), memoryview(b"d")]), list[bool])
    assert_type(seen.claim("a", note="a"), Claim)
    assert_type(seen.info(), FilterInfo)
    assert_type(local.last_seen("a"), Period | None)
    assert_type(exact.expires("a"), datetime | None)
    checks: Callable[[str], bool] = seen.contains
    checks("a")
    seen.add("a", ttl=5)  # type: ignore[call-arg]
    with seen.claiming("a") as is_new:
        assert_type(is_new, bool)


async def answers_later(seen: AsyncTimeBloom) -> None:
    assert_type(await seen.add_many(["a"]), list[bool])
    assert_type(await seen.claim("a"), Claim)
    assert_type(await seen.last_seen("a"), Period | None)
    checks: Callable[[str], Coroutine[Any, Any, bool]] = seen.contains
    await checks("a")
    async with seen.claiming("a") as is_new:
        assert_type(is_new, bool)


def counts(counter: DistinctCounter, later: AsyncDistinctCounter) -> None:
    use_count(counter)
    use_count(counter.members())
    both = counter.members() & counter.within(2)
    assert_type(both, MemberSet)
    assert_type(both.count(), int)
    assert_type(both.bitmap().issubset(counter.members().bitmap()), bool)
    assert_type(counter.count_and(both), int)
    assert_type(later.members() | later.members(), AsyncMemberSet)


async def counts_later(counter: AsyncDistinctCounter) -> None:
    assert_type(await (counter.members() ^ counter.members()).count(), int)
    assert_type(await counter.count_or(counter), int)

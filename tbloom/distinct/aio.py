"""The distinct counter for asyncio."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tbloom.distinct.selection import Selection
from tbloom.distinct.sets import AsyncMemberSet, Countable
from tbloom.distinct.verbs import CounterVerbs
from tbloom.engine.aio import AsyncDriver

if TYPE_CHECKING:
    from redis import asyncio  # noqa: F401 - named in the class's bases


class AsyncDistinctCounter(
    CounterVerbs["asyncio.Redis | asyncio.RedisCluster", AsyncMemberSet],
    AsyncDriver,
    Countable,
):
    """``DistinctCounter`` for asyncio: the same verbs, awaited. Any number of tasks may share one."""

    _OTHER = "DistinctCounter"

    def _set(self, selection: Selection) -> AsyncMemberSet:
        return AsyncMemberSet(self, selection)

"""The distinct counter and its sets, for asyncio."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, TypeVar

from tbloom.distinct.sets import Countable, SetVerbs
from tbloom.distinct.verbs import CounterVerbs
from tbloom.engine.aio import AsyncDriver
from tbloom.engine.flow import Flow
from tbloom.engine.methods import AsyncVerbs

if TYPE_CHECKING:
    from redis import asyncio  # noqa: F401 - named in the class's bases

T = TypeVar("T")


class AsyncMemberSet(SetVerbs, AsyncVerbs):
    """``MemberSet`` for asyncio: the same verbs, awaited."""

    async def run(self, flow: Flow[T]) -> T:
        """Run a flow by the set's counter, and return its result."""
        answer: T = await self.counter.run(flow)
        return answer

    async def pairs(self) -> AsyncIterator[tuple[int, str | bytes | int]]:
        """Yield each id with its member; see ``MemberSet.pairs``."""
        if self.counter.config.mapping is None:
            for number in await self.bitmap():
                yield number, number
            return
        pages = await self.run(self._pages())
        while (page := await self.run(pages.read())) is not None:
            for pair in page:
                yield pair

    async def __aiter__(self) -> AsyncIterator[str | bytes | int]:
        """Yield the members; see ``MemberSet.pairs``."""
        async for _, member in self.pairs():
            yield member


class AsyncDistinctCounter(
    CounterVerbs["asyncio.Redis | asyncio.RedisCluster", AsyncMemberSet],
    AsyncDriver,
    Countable,
):
    """``DistinctCounter`` for asyncio: the same verbs, awaited. Any number of tasks may share one."""

    _SETS = AsyncMemberSet
    _OTHER = "DistinctCounter"

"""The distinct counter for asyncio."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING

from tbloom.distinct.base import Counted, CounterBase
from tbloom.distinct.info import CounterInfo
from tbloom.distinct.selection import Selection, select, select_at
from tbloom.engine.aio import AsyncDriver
from tbloom.items import Item

if TYPE_CHECKING:
    from redis import asyncio  # noqa: F401 - named in the class's bases
    from typing_extensions import Self, Unpack

    from tbloom.distinct.base import CounterArguments


class AsyncCombined(Counted):
    """The counts of several operands."""

    async def count_and(self, *others: Counted) -> int:
        """See ``DistinctCounter.count_and``."""
        return await self._count("and", self._with(others))

    async def count_or(self, *others: Counted) -> int:
        """See ``DistinctCounter.count_or``."""
        return await self._count("or", self._with(others))

    async def count_xor(self, *others: Counted) -> int:
        """See ``DistinctCounter.count_xor``."""
        return await self._count("xor", self._with(others))

    @abstractmethod
    async def _count(self, operation: str, operands: list[Selection]) -> int:
        """Asks the server."""


class AsyncCounterSlices(AsyncCombined):
    """Some slices of an ``AsyncDistinctCounter``: see ``DistinctCounter``'s ``within`` and ``slice``."""

    def __init__(self, counter: AsyncDistinctCounter, selection: Selection) -> None:
        self._counter = counter
        self._selection = selection

    async def count(self) -> int:
        """The number of distinct members in these slices together."""
        return await self._count("or", [self._selection])

    async def _count(self, operation: str, operands: list[Selection]) -> int:
        return await self._counter._count(operation, operands)  # noqa: SLF001 - its own slices


class AsyncDistinctCounter(
    CounterBase["asyncio.Redis | asyncio.RedisCluster"], AsyncDriver, AsyncCombined
):
    """``DistinctCounter`` for asyncio: the same verbs, awaited. Any number of tasks may share one."""

    _OTHER = "DistinctCounter"

    @classmethod
    def from_url(
        cls, url: str, name: str, mapping: str = "ids", **more: Unpack[CounterArguments]
    ) -> Self:
        """See ``TimeBloom.from_url``; closed by ``aclose()``."""
        return cls._from_url(url, name, {"mapping": mapping, **more})

    async def add(self, member: Item) -> bool:
        """See ``DistinctCounter.add``."""
        return await self._run(self._protocol.add(member))

    async def add_many(self, members: Iterable[Item]) -> list[bool]:
        """See ``DistinctCounter.add_many``."""
        return await self._run(self._protocol.add_many(members))

    async def count(self, within: int | None = None) -> int:
        """See ``DistinctCounter.count``."""
        return await self._count("or", [select(self.config, within)])

    def within(self, slices: int) -> AsyncCounterSlices:
        """See ``DistinctCounter.within``."""
        return AsyncCounterSlices(self, select(self.config, slices))

    def slice(self, at: datetime | str) -> AsyncCounterSlices:
        """See ``DistinctCounter.slice``."""
        return AsyncCounterSlices(self, select_at(self.config, at))

    async def info(self) -> CounterInfo:
        """See ``DistinctCounter.info``."""
        return await self._run(self._protocol.info())

    async def warnings(self) -> list[str]:
        """See ``DistinctCounter.warnings``."""
        return await self._run(self._protocol.warnings())

    async def clear(self, *, mapping: bool = False) -> None:
        """See ``DistinctCounter.clear``."""
        await self._run(self._protocol.clear(mapping=mapping))

    async def _count(self, operation: str, operands: list[Selection]) -> int:
        return await self._run(self._protocol.count(operation, operands))

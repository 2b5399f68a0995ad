"""The distinct counter for asyncio."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from typing import TYPE_CHECKING

from tbloom.distinct.base import CounterBase
from tbloom.distinct.info import CounterInfo
from tbloom.distinct.selection import Selection, select
from tbloom.distinct.sets import AsyncMemberSet, Countable
from tbloom.engine.aio import AsyncDriver
from tbloom.items import Item

if TYPE_CHECKING:
    from redis import asyncio  # noqa: F401 - named in the class's bases
    from typing_extensions import Self, Unpack

    from tbloom.distinct.base import CounterArguments


class AsyncDistinctCounter(
    CounterBase["asyncio.Redis | asyncio.RedisCluster", AsyncMemberSet],
    AsyncDriver,
    Countable[Awaitable[int]],
):
    """``DistinctCounter`` for asyncio: the same verbs, awaited. Any number of tasks may share one."""

    _OTHER = "DistinctCounter"

    @classmethod
    def from_url(
        cls, url: str, name: str, mapping: str | None = "ids", **more: Unpack[CounterArguments]
    ) -> Self:
        """See ``TimeBloom.from_url``; closed by ``aclose()``."""
        return cls._from_url(url, name, {"mapping": mapping, **more})

    async def add(self, member: Item) -> bool:
        """See ``DistinctCounter.add``."""
        return await self._run(self._protocol.add(member))

    async def add_many(self, members: Iterable[Item]) -> list[bool]:
        """See ``DistinctCounter.add_many``."""
        return await self._run(self._protocol.add_many(members))

    async def contains(self, member: Item) -> bool:
        """See ``DistinctCounter.contains``."""
        return await self._run(self._protocol.contains(member))

    async def contains_many(self, members: Iterable[Item]) -> list[bool]:
        """See ``DistinctCounter.contains_many``."""
        return await self._run(self._protocol.contains_many(members))

    async def discard(self, member: Item) -> bool:
        """See ``DistinctCounter.discard``."""
        return await self._run(self._protocol.discard(member))

    async def discard_many(self, members: Iterable[Item]) -> list[bool]:
        """See ``DistinctCounter.discard_many``."""
        return await self._run(self._protocol.discard_many(members))

    async def count(self, within: int | None = None) -> int:
        """See ``DistinctCounter.count``."""
        return await self._set(select(self.config, within)).count()

    async def from_roaring(self, data: bytes) -> None:
        """See ``DistinctCounter.from_roaring``."""
        await self._run(self._protocol.from_roaring(data))

    async def info(self) -> CounterInfo:
        """See ``DistinctCounter.info``."""
        return await self._run(self._protocol.info())

    async def warnings(self) -> list[str]:
        """See ``DistinctCounter.warnings``."""
        return await self._run(self._protocol.warnings())

    async def clear(self, *, mapping: bool = False) -> None:
        """See ``DistinctCounter.clear``."""
        await self._run(self._protocol.clear(mapping=mapping))

    def _set(self, selection: Selection) -> AsyncMemberSet:
        return AsyncMemberSet(self._protocol, self._run, selection)

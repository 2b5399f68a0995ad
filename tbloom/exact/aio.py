"""The exact filter for asyncio."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from tbloom.engine.aio import AsyncDriver
from tbloom.exact.base import ExactBase
from tbloom.exact.info import ExactInfo
from tbloom.items import Item

if TYPE_CHECKING:
    from redis import asyncio  # noqa: F401 - named in the class's bases
    from typing_extensions import Self, Unpack

    from tbloom.exact.base import ExactArguments


class AsyncExactFilter(ExactBase["asyncio.Redis | asyncio.RedisCluster"], AsyncDriver):
    """``ExactFilter`` for asyncio: the same verbs, awaited. Any number of tasks may share one."""

    _OTHER = "ExactFilter"

    @classmethod
    def from_url(cls, url: str, name: str, **arguments: Unpack[ExactArguments]) -> Self:
        """See ``TimeBloom.from_url``; closed by ``aclose()``."""
        return cls._from_url(url, name, arguments)

    async def add(self, item: Item, ttl: float | timedelta | None = None) -> bool:
        """See ``ExactFilter.add``."""
        return await self._run(self._protocol.add(item, ttl))

    async def add_many(
        self, items: Iterable[Item], ttl: float | timedelta | None = None
    ) -> list[bool]:
        """See ``ExactFilter.add_many``."""
        return await self._run(self._protocol.add_many(items, ttl))

    async def contains(self, item: Item) -> bool:
        """See ``ExactFilter.contains``."""
        return await self._run(self._protocol.contains(item))

    async def contains_many(self, items: Iterable[Item]) -> list[bool]:
        """See ``ExactFilter.contains_many``."""
        return await self._run(self._protocol.contains_many(items))

    async def discard(self, item: Item) -> bool:
        """See ``ExactFilter.discard``."""
        return await self._run(self._protocol.discard(item))

    async def discard_many(self, items: Iterable[Item]) -> list[bool]:
        """See ``ExactFilter.discard_many``."""
        return await self._run(self._protocol.discard_many(items))

    async def expires(self, item: Item) -> datetime | None:
        """See ``ExactFilter.expires``."""
        return await self._run(self._protocol.expires(item))

    async def expires_many(self, items: Iterable[Item]) -> list[datetime | None]:
        """See ``ExactFilter.expires_many``."""
        return await self._run(self._protocol.expires_many(items))

    async def info(self) -> ExactInfo:
        """See ``ExactFilter.info``."""
        return await self._run(self._protocol.info())

    async def warnings(self) -> list[str]:
        """See ``ExactFilter.warnings``."""
        return await self._run(self._protocol.warnings())

    async def clear(self) -> None:
        """See ``ExactFilter.clear``."""
        await self._run(self._protocol.clear())

"""The filter without a server, for asyncio."""

from __future__ import annotations

from asyncio import sleep
from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from tbloom.bloom.info import FilterInfo
from tbloom.items import Item
from tbloom.local import info
from tbloom.local.base import LocalBase
from tbloom.local.protocol import Steps
from tbloom.window import Period

if TYPE_CHECKING:
    from os import PathLike

    from typing_extensions import Self

T = TypeVar("T")


class AsyncLocalBloom(LocalBase):
    """``LocalBloom`` for asyncio: the same verbs, awaited.

    A call with many items lets other tasks run after every few thousand items. Between hashing and the first look,
    and at the end, it goes through all of them without a pause: with a million items that takes up to half a second,
    so give it tens of thousands at a time. ``info()`` counts all bits without a pause (300 MB: 0.2 s). To wait for the
    lock of a file holds up the event loop, for as long as other processes look at it.
    """

    async def add(self, item: Item, within: int | None = None) -> bool:
        """See ``LocalBloom.add``."""
        return self._protocol.add(item, within)

    async def add_many(self, items: Iterable[Item], within: int | None = None) -> list[bool]:
        """See ``LocalBloom.add_many``."""
        return await _finish(self._protocol.add_many(items, within))

    async def contains(self, item: Item, within: int | None = None) -> bool:
        """See ``LocalBloom.contains``."""
        return self._protocol.contains(item, within)

    async def contains_many(self, items: Iterable[Item], within: int | None = None) -> list[bool]:
        """See ``LocalBloom.contains_many``."""
        return await _finish(self._protocol.contains_many(items, within))

    async def last_seen(self, item: Item) -> Period | None:
        """See ``LocalBloom.last_seen``."""
        return (await self.last_seen_many([item]))[0]

    async def last_seen_many(self, items: Iterable[Item]) -> list[Period | None]:
        """See ``LocalBloom.last_seen_many``."""
        return await _finish(self._protocol.last_seen_many(items))

    async def keys(self, at: datetime | None = None) -> list[str]:
        """See ``LocalBloom.keys``."""
        return info.keys(self._protocol, at)

    async def info(self, earlier: FilterInfo | None = None) -> FilterInfo:
        """See ``LocalBloom.info``."""
        return info.overview(self._protocol, earlier)

    async def merge(self, *others: LocalBase | str | PathLike[str]) -> None:
        """See ``LocalBloom.merge``; no other task runs meanwhile."""
        self._merge(others)

    async def clear(self) -> None:
        """See ``LocalBloom.clear``."""
        self._protocol.clear()

    async def aclose(self) -> None:
        """See ``LocalBloom.close``."""
        self._protocol.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


async def _finish(steps: Steps[T]) -> T:
    """The answer; other tasks run between the steps."""
    try:
        while True:
            next(steps)
            await sleep(0)
    except StopIteration as stop:
        answer: T = stop.value
        return answer
    finally:
        steps.close()  # also where the task is cancelled

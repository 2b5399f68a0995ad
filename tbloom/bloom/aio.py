"""The filter for asyncio."""

from __future__ import annotations

import weakref
from asyncio import Task, create_task, get_running_loop
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from typing import TYPE_CHECKING

from redis import RedisError, asyncio

from tbloom.bloom.base import Base
from tbloom.bloom.claims.heartbeat import beat_in_task
from tbloom.bloom.claims.holdings import Claim
from tbloom.bloom.info import FilterInfo
from tbloom.engine.aio import AsyncDriver
from tbloom.errors import TBloomError
from tbloom.items import Item

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from tbloom.bloom.base import Arguments


class AsyncTimeBloom(Base["asyncio.Redis | asyncio.RedisCluster"], AsyncDriver):
    """``TimeBloom`` for asyncio: the same verbs, awaited. Any number of tasks may share one."""

    _OTHER = "TimeBloom"

    @classmethod
    def from_url(cls, url: str, name: str, **arguments: Unpack[Arguments]) -> Self:
        """See ``TimeBloom.from_url``; closed by ``aclose()``."""
        return cls._from_url(url, name, arguments)

    def __init__(
        self,
        client: asyncio.Redis | asyncio.RedisCluster,
        name: str,
        **arguments: Unpack[Arguments],
    ) -> None:
        super().__init__(client, name, **arguments)
        self._heart: Task[None] | None = None

    __init__.__doc__ = Base.__init__.__doc__

    async def add(self, item: Item, within: int | None = None) -> bool:
        """See ``TimeBloom.add``."""
        return await self._run(
            self._protocol.add(item, within), *self._guess(schedule=True, drop=False)
        )

    async def add_many(self, items: Iterable[Item], within: int | None = None) -> list[bool]:
        """See ``TimeBloom.add_many``."""
        items, guesses = self._guess_many(items, schedule=True, drop=False)
        return await self._run(self._protocol.add_many(items, within), *guesses)

    async def contains(self, item: Item, within: int | None = None) -> bool:
        """See ``TimeBloom.contains``."""
        return await self._run(
            self._protocol.contains(item, within), *self._guess(schedule=False, drop=True)
        )

    async def contains_many(self, items: Iterable[Item], within: int | None = None) -> list[bool]:
        """See ``TimeBloom.contains_many``."""
        items, guesses = self._guess_many(items, schedule=False, drop=True)
        return await self._run(self._protocol.contains_many(items, within), *guesses)

    async def claim(
        self, item: Item, within: int | None = None, note: str = "", giver: str = ""
    ) -> Claim:
        """See ``TimeBloom.claim``. The signs of life come from a task of this event loop."""
        self._live()
        flow = self._protocol.claim(item, within, note, giver)
        return await self._run(flow, *self._guess(schedule=Claim.NEW, drop=Claim.SEEN))

    async def claim_many(
        self,
        items: Iterable[Item],
        within: int | None = None,
        notes: Iterable[str] | None = None,
        giver: str = "",
    ) -> list[Claim]:
        """See ``TimeBloom.claim_many``."""
        self._live()
        items, guesses = self._guess_many(items, schedule=Claim.NEW, drop=Claim.SEEN)
        return await self._run(self._protocol.claim_many(items, within, notes, giver), *guesses)

    async def commit(self, item: Item) -> None:
        """See ``TimeBloom.commit``."""
        self._live()
        flow = self._protocol.commit(item)
        await self._run(flow, *self._guess(schedule=None, drop=None))

    async def commit_many(self, items: Iterable[Item]) -> None:
        """See ``TimeBloom.commit_many``."""
        self._live()
        flow = self._protocol.commit_many(items)
        await self._run(flow, *self._guess(schedule=None, drop=None))

    async def release(self, item: Item) -> None:
        """See ``TimeBloom.release``."""
        await self._run(self._protocol.release(item), *self._guess(schedule=None, drop=None))

    async def release_many(self, items: Iterable[Item]) -> None:
        """See ``TimeBloom.release_many``."""
        flow = self._protocol.release_many(items)
        await self._run(flow, *self._guess(schedule=None, drop=None))

    async def abandon_many(self, items: Iterable[Item]) -> None:
        """See ``TimeBloom.abandon_many``."""
        flow = self._protocol.abandon_many(items)
        await self._run(flow, *self._guess(schedule=None, drop=None))

    @asynccontextmanager
    async def claiming(self, item: Item, within: int | None = None) -> AsyncIterator[bool]:
        """``async with seen.claiming(item) as is_new:``, see ``TimeBloom.claiming``."""
        is_new = await self.claim(item, within) is Claim.NEW
        try:
            yield is_new
        except BaseException:
            if is_new:
                with suppress(RedisError):  # it is made up for later
                    await self.release(item)
            raise
        if is_new:
            try:
                await self.commit(item)
            except TBloomError:  # it can't be committed
                await self.release(item)
                raise

    async def take_over(self, limit: int = 100, prefix: str = "") -> list[str]:
        """See ``TimeBloom.take_over``."""
        self._live()
        return await self._run(self._protocol.take_over(limit, prefix))

    async def keys(self, at: datetime | None = None) -> list[str]:
        """See ``TimeBloom.keys``."""
        return await self._run(self._protocol.keys(at))

    async def info(self, earlier: FilterInfo | None = None) -> FilterInfo:
        """See ``TimeBloom.info``."""
        return await self._run(self._protocol.info(earlier))

    async def warnings(self) -> list[str]:
        """See ``TimeBloom.warnings``."""
        return await self._run(self._protocol.warnings())

    async def clear(self) -> None:
        """See ``TimeBloom.clear``."""
        await self._run(self._protocol.clear())

    async def reconfigure(self) -> None:
        """See ``TimeBloom.reconfigure``."""
        await self._run(self._protocol.reconfigure())

    async def aclose(self) -> None:
        """See ``TimeBloom.close``."""
        if self._heart is not None:
            self._heart.cancel()
        self._heart, self._retry_for = None, 0.0
        with suppress(RedisError, TBloomError):  # else it ends by itself
            await self._run(self._protocol.sessions.end())
        await super().aclose()

    def _live(self) -> None:
        """Sees to it that the session gives signs of life."""
        heart = self._heart
        if heart is None or heart.done() or heart.get_loop() is not get_running_loop():
            beat = weakref.WeakMethod(self._beat)
            self._heart = create_task(beat_in_task(beat, self._beat_seconds()))

    async def _beat(self) -> None:
        if self._protocol.sessions.are_needed:
            await self._run(self._protocol.sessions.beat())

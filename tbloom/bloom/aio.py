"""The filter for asyncio."""

from __future__ import annotations

import weakref
from asyncio import Task, create_task, get_running_loop
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from redis import RedisError

from tbloom.bloom.base import Base
from tbloom.bloom.claims.heartbeat import run_in_task
from tbloom.bloom.claims.held import Claim
from tbloom.bloom.info import FilterInfo
from tbloom.engine.aio import AsyncDriver
from tbloom.engine.flow import Flow
from tbloom.errors import ConfigMismatch, TBloomError
from tbloom.items import Item, rereadable
from tbloom.window import Period

if TYPE_CHECKING:
    from redis import asyncio  # noqa: F401 - named in the class's bases
    from typing_extensions import Self, Unpack

    from tbloom.bloom.base import Arguments

T = TypeVar("T")


class AsyncTimeBloom(Base["asyncio.Redis | asyncio.RedisCluster"], AsyncDriver):
    """``TimeBloom`` for asyncio: the same verbs, awaited. Any number of tasks may share one."""

    _OTHER = "TimeBloom"
    _heartbeat: Task[None] | None = None

    @classmethod
    def from_url(cls, url: str, name: str, **arguments: Unpack[Arguments]) -> Self:
        """See ``TimeBloom.from_url``; closed by ``aclose()``."""
        return cls._from_url(url, name, arguments)

    async def add(self, item: Item, within: int | None = None) -> bool:
        """See ``TimeBloom.add``."""
        return await self._ask(self._protocol.add, item, within)

    async def add_many(self, items: Iterable[Item], within: int | None = None) -> list[bool]:
        """See ``TimeBloom.add_many``."""
        return await self._ask(self._protocol.add_many, rereadable(items), within)

    async def contains(self, item: Item, within: int | None = None) -> bool:
        """See ``TimeBloom.contains``."""
        return await self._ask(self._protocol.contains, item, within)

    async def contains_many(self, items: Iterable[Item], within: int | None = None) -> list[bool]:
        """See ``TimeBloom.contains_many``."""
        return await self._ask(self._protocol.contains_many, rereadable(items), within)

    async def last_seen(self, item: Item) -> Period | None:
        """See ``TimeBloom.last_seen``."""
        return await self._ask(self._protocol.last_seen, item)

    async def last_seen_many(self, items: Iterable[Item]) -> list[Period | None]:
        """See ``TimeBloom.last_seen_many``."""
        return await self._ask(self._protocol.last_seen_many, rereadable(items))

    async def claim(
        self, item: Item, within: int | None = None, note: str = "", previous_owner: str = ""
    ) -> Claim:
        """See ``TimeBloom.claim``. The heartbeats come from a task of this event loop."""
        self._keep_session()
        verb = self._protocol.claim
        return await self._ask(verb, item, within, note, previous_owner)

    async def claim_many(
        self,
        items: Iterable[Item],
        within: int | None = None,
        notes: Iterable[str] | None = None,
        previous_owner: str = "",
    ) -> list[Claim]:
        """See ``TimeBloom.claim_many``."""
        self._keep_session()
        notes = notes and rereadable(notes)
        verb = self._protocol.claim_many
        return await self._ask(verb, rereadable(items), within, notes, previous_owner)

    async def commit(self, item: Item) -> None:
        """See ``TimeBloom.commit``."""
        self._keep_session()
        await self._ask(self._protocol.commit, item)

    async def commit_many(self, items: Iterable[Item]) -> None:
        """See ``TimeBloom.commit_many``."""
        self._keep_session()
        await self._ask(self._protocol.commit_many, rereadable(items))

    async def release(self, item: Item) -> None:
        """See ``TimeBloom.release``."""
        await self._ask(self._protocol.release, item)

    async def release_many(self, items: Iterable[Item]) -> None:
        """See ``TimeBloom.release_many``."""
        await self._ask(self._protocol.release_many, rereadable(items))

    async def abandon_many(self, items: Iterable[Item]) -> None:
        """See ``TimeBloom.abandon_many``."""
        await self._ask(self._protocol.release_many, rereadable(items), "abandon")

    @asynccontextmanager
    async def claiming(self, item: Item, within: int | None = None) -> AsyncIterator[bool]:
        """``async with seen.claiming(item) as is_new:``, see ``TimeBloom.claiming``."""
        is_new = await self.claim(item, within) is Claim.NEW
        try:
            yield is_new
        except BaseException:
            if is_new:
                with suppress(RedisError):  # a heartbeat will release it
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
        self._keep_session()
        return await self._ask(self._protocol.take_over, limit, prefix)

    async def other_sessions(self) -> dict[str, int]:
        """See ``TimeBloom.other_sessions``."""
        return await self._run(self._protocol.sessions.others())

    async def pause_session(self) -> None:
        """See ``TimeBloom.pause_session``."""
        await self._run(self._protocol.sessions.pause())

    async def end_session(self) -> None:
        """See ``TimeBloom.end_session``."""
        await self._run(self._protocol.sessions.end())

    async def import_many(self, items: Iterable[Item], label: str | None = None) -> int:
        """See ``TimeBloom.import_many``."""
        return await self._ask(self._protocol.import_many, rereadable(items), label)

    async def keys(self, at: datetime | None = None) -> list[str]:
        """See ``TimeBloom.keys``."""
        return await self._ask(self._protocol.keys, at)

    async def info(self, earlier: FilterInfo | None = None) -> FilterInfo:
        """See ``TimeBloom.info``."""
        return await self._ask(self._protocol.info, earlier)

    async def warnings(self) -> list[str]:
        """See ``TimeBloom.warnings``."""
        return await self._ask(self._protocol.warnings)

    async def clear(self) -> None:
        """See ``TimeBloom.clear``."""
        await self._run(self._protocol.clear())

    async def swap(self, name: str) -> None:
        """See ``TimeBloom.swap``."""
        await self._ask(self._protocol.swap, name)

    async def reconfigure(self) -> None:
        """See ``TimeBloom.reconfigure``."""
        await self._ask(self._protocol.reconfigure)

    async def aclose(self) -> None:
        """See ``TimeBloom.close``."""
        if self._heartbeat is not None:
            self._heartbeat.cancel()
        self._heartbeat = None
        await self._let_go()
        try:
            with suppress(RedisError, TBloomError):  # without it the session ends by its TTL
                await self.end_session()
        finally:
            await super().aclose()

    async def _ask(self, verb: Callable[..., Flow[T]], *args: Any) -> T:
        """See ``TimeBloom._ask``."""
        try:
            return await self._run(verb(*args))
        except ConfigMismatch as error:
            await self._run(self._protocol.agree(error))
        return await self._run(verb(*args))

    def _keep_session(self) -> None:
        """Starts the task that sends heartbeats, if it does not run in this event loop."""
        task = self._heartbeat
        if task is None or task.done() or task.get_loop() is not get_running_loop():
            send = weakref.WeakMethod(self._send_heartbeat)
            self._heartbeat = create_task(run_in_task(send, self._beat_seconds()))

    async def _send_heartbeat(self) -> None:
        if self._protocol.sessions.are_needed:
            await self._run(self._protocol.sessions.send_heartbeat())

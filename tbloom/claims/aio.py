"""The filter with its claims, for asyncio."""

from __future__ import annotations

import weakref
from asyncio import Task, create_task
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from contextvars import Context
from typing import Self, Unpack

from redis import RedisError, asyncio

from tbloom.arguments import Item, encode
from tbloom.bloom.base import ClientSettings
from tbloom.claims.calls import Claim
from tbloom.claims.heartbeat import run_in_task
from tbloom.claims.verbs import ClaimVerbs
from tbloom.engine.aio import AsyncDriver
from tbloom.engine.urls import ClientOptions
from tbloom.errors import ConfigMismatch, TBloomError


class AsyncTimeBloom(ClaimVerbs["asyncio.Redis | asyncio.RedisCluster"], AsyncDriver):
    """``TimeBloom`` for asyncio: the same methods, awaited. Any number of tasks may share an object."""

    _OTHER = "TimeBloom"
    _heartbeat: Task[None] | None = None

    @classmethod
    async def open(
        cls,
        client: asyncio.Redis | asyncio.RedisCluster | str,
        name: str,
        *,
        client_options: ClientOptions = None,
        secret: bytes | None = None,
        **own: Unpack[ClientSettings],
    ) -> Self:
        """Open a stored filter with its stored parameters; see ``TimeBloom.open``."""
        return await cls._open(client, name, client_options, own, secret)

    def claiming(self, item: Item, within: int | None = None) -> AbstractAsyncContextManager[bool]:
        """Claim the item in ``async with seen.claiming(item) as is_new:``.

        At the end of the block, a new item is committed. A WARNING says if another session has taken it over meanwhile. If the
        block raises an exception, the item is released. If the commit fails, it stays claimed, as after ``commit``; but with
        ConfigMismatch it is released.
        """
        return self._claiming(item, within)

    @asynccontextmanager
    async def _claiming(self, item: Item, within: int | None) -> AsyncIterator[bool]:
        item = encode(item)  # the caller may change a buffer
        is_new = await self.claim(item, within) is Claim.NEW
        try:
            yield is_new
        except BaseException:
            if is_new:
                with suppress(RedisError):  # a heartbeat repeats the release
                    await self.release(item)
            raise
        if is_new:
            try:
                await self.commit(item)
            except ConfigMismatch:  # another try would be refused too
                await self.release(item)
                raise

    async def aclose(self) -> None:
        """End the session, which frees its claims, and close the client, if ``from_url`` made it. Later calls raise TBloomError."""
        if self._is_closed:
            return
        if self._heartbeat is not None:
            self._heartbeat.cancel()
        self._heartbeat = None
        await self._stop_retrying()
        try:
            if self._claims.is_used:
                with suppress(RedisError, TBloomError):  # the session then ends by its TTL
                    await self.end_session()
            self._warn_of_taken_over()
            self._warn_of_uncommitted()
        finally:
            await super().aclose()

    def _keep_session(self) -> None:
        """Start the task that sends heartbeats, unless it runs."""
        if self._heartbeat is None or self._heartbeat.done():
            self._batcher.check_loop()
            send = weakref.WeakMethod(self._send_heartbeat)
            # Not in the context of the request that claims first, which would live as long.
            self._heartbeat = create_task(
                run_in_task(send, self._beat_seconds()), context=Context()
            )

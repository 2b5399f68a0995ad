"""The filter for asyncio."""

from __future__ import annotations

import weakref
from asyncio import Task, create_task
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from time import monotonic_ns
from typing import TYPE_CHECKING

from redis import RedisError

from tbloom.bloom.claims.heartbeat import run_in_task
from tbloom.bloom.claims.held import Claim
from tbloom.bloom.claims.verbs import ClaimVerbs
from tbloom.bloom.exchange import Usual
from tbloom.engine.aio import AsyncDriver
from tbloom.errors import TBloomError
from tbloom.items import Item

if TYPE_CHECKING:
    from redis import asyncio  # noqa: F401 - named in the class's bases

#: The replies to one item.
_ONE, _ZERO = _EXPECTED = [0, b"1"], [0, b"0"]


class AsyncTimeBloom(ClaimVerbs["asyncio.Redis | asyncio.RedisCluster"], AsyncDriver):
    """``TimeBloom`` for asyncio: the same verbs, awaited. Any number of tasks may share one."""

    _OTHER = "TimeBloom"
    _heartbeat: Task[None] | None = None
    _usual: Usual | None = None

    async def _add_alone(self, key: bytes) -> bool:
        """Is the item new? Makes the usual call, if that is possible."""
        exchange, lane, reply = self._exchange, None, None
        usual = self._usual
        if usual is None and self._connections.keeps:
            usual = self._usual = exchange.usual_calls(self._connections.renewal)
        if (
            usual is not None
            and usual.calls is exchange.calls
            and not exchange.pending_answers.exist
            and not self._cache.size
            and usual.begins <= monotonic_ns() < usual.ends
        ):
            try:
                lane = exchange.lanes.take()
                request = usual.adding.packed([key], lane)
                reply = await self._connections.ask(request)
                if reply in _EXPECTED:
                    exchange.lanes.give_back([lane])
                    return bool(reply == _ONE)
                if reply is None:  # nothing was executed
                    exchange.lanes.give_back([lane])
                else:
                    exchange.keep_unanswered(usual, key, lane, "")  # the flow fetches the answer
            except BaseException:  # a cancellation
                if lane is not None:
                    exchange.keep_unanswered(usual, key, lane, "1" if reply == _ONE else "")
                raise
        self._usual = None
        answers = await self.run(self._agreed(self._add_digests, [key], self.config.slices, 0))
        return answers.get(key, False)

    @asynccontextmanager
    async def claiming(self, item: Item, within: int | None = None) -> AsyncIterator[bool]:
        """``async with seen.claiming(item) as is_new:`` commits a new item at the end, or releases it on an exception."""
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

    async def aclose(self) -> None:
        """Ends the session, which frees its claims, and closes the client, if ``from_url`` made it."""
        if self._heartbeat is not None:
            self._heartbeat.cancel()
        self._heartbeat = None
        await self._let_go()
        try:
            with suppress(RedisError, TBloomError):  # without it the session ends by its TTL
                await self.end_session()
            self._warn_of_uncommitted()
        finally:
            await super().aclose()

    def _keep_session(self) -> None:
        """Starts the task that sends heartbeats, if it does not run."""
        if self._heartbeat is None or self._heartbeat.done():
            self._tasks.check_loop()
            send = weakref.WeakMethod(self._send_heartbeat)
            self._heartbeat = create_task(run_in_task(send, self._beat_seconds()))

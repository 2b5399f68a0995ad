"""The filter for asyncio."""

from __future__ import annotations

import weakref
from asyncio import Task, create_task, get_running_loop, sleep
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

from redis import RedisError, asyncio
from redis.asyncio.retry import Retry

from tbloom.base import Base, make_client, parse_url
from tbloom.calls import Call, Flow
from tbloom.errors import TBloomError
from tbloom.failures import as_redis_error, have_failed
from tbloom.hashing import Item
from tbloom.heart import beat_in_task
from tbloom.holdings import Claim
from tbloom.info import FilterInfo

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from tbloom.base import Arguments

T = TypeVar("T")


class AsyncTimeBloom(Base["asyncio.Redis | asyncio.RedisCluster"]):
    """``TimeBloom`` for asyncio: the same verbs, awaited. Any number of tasks may share one."""

    _CLIENTS = (asyncio.Redis, asyncio.RedisCluster)
    _OTHER = "TimeBloom"

    @classmethod
    def from_url(cls, url: str, name: str, **arguments: Unpack[Arguments]) -> Self:
        """See ``TimeBloom.from_url``; closed by ``aclose()``."""
        address, cluster = parse_url(url)
        kind = asyncio.RedisCluster if cluster else asyncio.Redis
        seen = cls(make_client(kind.from_url, Retry, address), name, **arguments)
        seen._own_client()
        return seen

    def __init__(
        self,
        client: asyncio.Redis | asyncio.RedisCluster,
        name: str,
        **arguments: Unpack[Arguments],
    ) -> None:
        super().__init__(client, name, **arguments)
        self._heart: Task[None] | None = None
        self._cluster_unknown = isinstance(client, asyncio.RedisCluster)

    __init__.__doc__ = Base.__init__.__doc__

    async def _meet_cluster(self) -> None:
        """An asyncio client knows its cluster's masters only once it has been there."""
        if isinstance(self.client, asyncio.RedisCluster):
            try:
                await self.client.initialize()
            except Exception as error:
                raise as_redis_error(error) from error
            if self._cluster_unknown:  # another task may have been faster
                self._spread(len(self.client.get_primaries()))
        self._cluster_unknown = False

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
        self._heart, self._patience = None, 0.0
        with suppress(RedisError, TBloomError):  # else it ends by itself
            await self._run(self._protocol.sessions.end())
        if self._owned:
            await self.client.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def _live(self) -> None:
        """Sees to it that the session gives signs of life."""
        heart = self._heart
        if heart is None or heart.done() or heart.get_loop() is not get_running_loop():
            beat = weakref.WeakMethod(self._beat)
            self._heart = create_task(beat_in_task(beat, self._beat_seconds()))

    async def _beat(self) -> None:
        if self._protocol.sessions.are_needed:
            await self._run(self._protocol.sessions.beat())

    async def _run(self, flow: Flow[T], *guess: T) -> T:
        """The flow's answer; with a ``guess``, that while the server does not answer."""
        asked = False
        try:
            try:
                if self._cluster_unknown:
                    await self._meet_cluster()
                calls = next(flow)
                while not guess or asked or self.circuit.lets_through():
                    replies = await self._send(calls)
                    asked = True
                    calls = flow.send(replies)
            except StopIteration as stop:
                if asked:
                    self.circuit.worked()
                answer: T = stop.value
                return answer
            except (RedisError, TBloomError) as error:
                if not self._is_lost(error, asked=asked) or not guess:
                    raise
            self._told_by_guess(flow)
            return guess[0]
        finally:
            flow.close()  # tells it of an error or a cancellation here

    async def _send(self, calls: Sequence[Call]) -> Sequence[Any]:
        began, replies = monotonic(), await self._exchange(calls)
        if not have_failed(replies):
            return replies
        trip = self._trip(calls, began)
        trip.take(replies)
        while trip.pending:
            await sleep(trip.pause)
            trip.take(await self._exchange(trip.pending))
        return trip.replies

    async def _exchange(self, calls: Sequence[Call]) -> Sequence[Any]:
        """Sends the calls once; the reply, or redis-py's error, to each."""
        try:
            if len(calls) == 1:
                return [await self.client.execute_command(*calls[0].words)]
            async with self.client.pipeline(transaction=False) as pipeline:
                for call in calls:
                    pipeline.execute_command(*call.words)
                replies: Sequence[Any] = await pipeline.execute(raise_on_error=False)
                return replies
        except Exception as error:  # noqa: BLE001 - Trip raises those that are not for it
            return [error] * len(calls)

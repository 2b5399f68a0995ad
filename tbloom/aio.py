"""The filter for asyncio."""

from __future__ import annotations

from asyncio import sleep
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from redis import asyncio
from redis.asyncio.retry import Retry

from tbloom.base import RESENDS, Base, Trip, backoff, parse_url
from tbloom.calls import Call, Flow
from tbloom.hashing import Item
from tbloom.info import FilterInfo

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from tbloom.config import Parameters

T = TypeVar("T")


class AsyncTimeBloom(Base["asyncio.Redis | asyncio.RedisCluster"]):
    """``TimeBloom`` for asyncio: the same verbs, awaited. Any number of tasks may share one."""

    _CLIENTS = (asyncio.Redis, asyncio.RedisCluster)
    _OTHER = "TimeBloom"

    @classmethod
    def from_url(cls, url: str, name: str, **parameters: Unpack[Parameters]) -> AsyncTimeBloom:
        """See ``TimeBloom.from_url``; closed by ``aclose()``."""
        address, cluster = parse_url(url)
        kind = asyncio.RedisCluster if cluster else asyncio.Redis
        seen = cls(kind.from_url(address, retry=Retry(backoff(), RESENDS)), name, **parameters)
        seen._owned = True
        return seen

    def __init__(
        self,
        client: asyncio.Redis | asyncio.RedisCluster,
        name: str,
        **parameters: Unpack[Parameters],
    ) -> None:
        super().__init__(client, name, **parameters)
        self._cluster_unknown = isinstance(client, asyncio.RedisCluster)

    __init__.__doc__ = Base.__init__.__doc__

    async def _meet_cluster(self) -> None:
        """An asyncio client knows its cluster's masters only once it has been there."""
        if isinstance(self.client, asyncio.RedisCluster):
            await self.client.initialize()
            if self._cluster_unknown:  # another task may have been faster
                self._spread(len(self.client.get_primaries()))
        self._cluster_unknown = False

    async def add(self, item: Item, within: int | None = None) -> bool:
        """See ``TimeBloom.add``."""
        return await self._run(self._protocol.add(item, within))

    async def add_many(self, items: Iterable[Item], within: int | None = None) -> list[bool]:
        """See ``TimeBloom.add_many``."""
        return await self._run(self._protocol.add_many(items, within))

    async def contains(self, item: Item, within: int | None = None) -> bool:
        """See ``TimeBloom.contains``."""
        return await self._run(self._protocol.contains(item, within))

    async def contains_many(self, items: Iterable[Item], within: int | None = None) -> list[bool]:
        """See ``TimeBloom.contains_many``."""
        return await self._run(self._protocol.contains_many(items, within))

    async def keys(self, at: datetime | None = None) -> list[str]:
        """See ``TimeBloom.keys``."""
        return await self._run(self._protocol.keys(at))

    async def info(self) -> FilterInfo:
        """See ``TimeBloom.info``."""
        return await self._run(self._protocol.info())

    async def clear(self) -> None:
        """See ``TimeBloom.clear``."""
        await self._run(self._protocol.clear())

    async def reconfigure(self) -> None:
        """See ``TimeBloom.reconfigure``."""
        await self._run(self._protocol.reconfigure())

    async def aclose(self) -> None:
        """Closes the client, if ``from_url`` made it."""
        if self._owned:
            await self.client.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _run(self, flow: Flow[T]) -> T:
        if self._cluster_unknown:
            await self._meet_cluster()
        try:
            calls = next(flow)
            while True:
                calls = flow.send(await self._send(calls))
        except StopIteration as stop:
            answer: T = stop.value
            return answer
        finally:
            flow.close()  # tells it of an error or a cancellation here

    async def _send(self, calls: Sequence[Call]) -> Sequence[Any]:
        trip = Trip(calls, self._patience)
        while trip.pending:
            if trip.pause:
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

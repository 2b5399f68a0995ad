"""The driver for asyncio: sends a flow's calls."""

from __future__ import annotations

from asyncio import sleep
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from redis import asyncio
from redis.asyncio.retry import Retry

from tbloom.engine.async_connections import AsyncConnections
from tbloom.engine.client import Store
from tbloom.engine.flow import Call, Flow
from tbloom.engine.retries import as_redis_error
from tbloom.engine.together import Tasks
from tbloom.engine.verbs import AsyncVerbs

if TYPE_CHECKING:
    from typing_extensions import Self

T = TypeVar("T")


class AsyncDriver(AsyncVerbs, Store["asyncio.Redis | asyncio.RedisCluster", Any]):
    """Sends calls, and awaits the replies."""

    _CLIENTS = (asyncio.Redis, asyncio.RedisCluster)
    _RETRY = Retry
    _connections: AsyncConnections
    _cluster_unknown: bool
    _tasks: Tasks

    def _begin(self) -> None:
        self._connections = AsyncConnections(self.client)
        self._cluster_unknown = isinstance(self.client, asyncio.RedisCluster)
        self._tasks = Tasks()

    def _own_client(self) -> None:
        super()._own_client()
        # Not without retries: the server may have closed a kept connection unnoticed.
        if self._retry_for and not self._cluster_unknown:
            self._connections.keep()

    async def _meet_cluster(self) -> None:
        """Counts the cluster's masters, which an asyncio client knows after its first connection only."""
        cluster: Any = self.client
        try:
            await cluster.initialize()
        except Exception as error:
            raise as_redis_error(error) from error
        if self._cluster_unknown:  # another task may have been faster
            self._spread(len(cluster.get_primaries()))
            self._cluster_unknown = False

    async def aclose(self) -> None:
        """Closes the client, if ``from_url`` made it."""
        await self._let_go()
        if self._owned:
            await self.client.aclose()

    async def _let_go(self) -> None:
        """Ends retries, and with them the kept connections."""
        self._retry_for, self._connections.keeps = 0.0, False
        await self._connections.let_go()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def run(self, flow: Flow[T]) -> T:
        """The answer of a flow (``tbloom.engine.flow``), whose calls are sent as those of the verbs are."""
        try:
            self._tasks.check_loop()
            if self._cluster_unknown:
                await self._meet_cluster()
            calls = next(flow)
            while True:
                calls = flow.send(await self._send(calls))
        except StopIteration as stop:
            answer: T = stop.value
            return answer
        finally:
            flow.close()  # so that it notes an error or a cancellation

    async def _send(self, calls: Sequence[Call]) -> Sequence[Any]:
        retries = self._retries(calls)
        while True:
            retries.take(await self._connections.send(retries.pending))
            if retries.is_demoted:
                await self._connections.renew()
            if not retries.pending:
                return retries.replies
            if retries.waits:
                self._tasks.go_on()
                await sleep(retries.pause)
            if retries.waits and isinstance(self.client, asyncio.RedisCluster):
                with suppress(Exception):  # the next try tells
                    await self.client.nodes_manager.initialize()

"""The driver for asyncio: sends a flow's calls."""

from __future__ import annotations

from asyncio import Semaphore, sleep, timeout
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from time import monotonic_ns
from typing import Any, Self, TypeVar

from redis import asyncio
from redis.asyncio.retry import Retry

from tbloom.engine.batcher import Batcher
from tbloom.engine.client import Store
from tbloom.engine.flow import Call, Flow
from tbloom.engine.retries import as_redis_error
from tbloom.engine.sending import (
    next_renewal,
    options_of,
    plain_options,
    queued,
    redis_error,
)
from tbloom.engine.urls import ClientOptions
from tbloom.engine.verbs import AsyncVerbs

T = TypeVar("T")
#: The connections of a client, at most; more would make no call faster.
_MOST = 50


class AsyncSender:
    """Sends calls through one client, for the tasks of one event loop, which wait where redis-py would raise
    MaxConnectionsError."""

    def __init__(self, client: asyncio.Redis | asyncio.RedisCluster) -> None:
        self._client: Any = client
        self._plain = plain_options(client)
        self._pool: Any = getattr(client, "connection_pool", None)
        self._room = Semaphore(min(_MOST, getattr(self._pool, "max_connections", _MOST)))
        #: How long (s) replies are waited for; None: redis-py limits that.
        self._time_limit: float | None = None
        #: When connections are closed, so that the address is asked anew (ns, by the monotonic clock).
        self._renewal = next_renewal()

    def own_client(self) -> None:
        """Limits the time for replies in redis-py's place, which would start a task for each request: that may swallow a
        cancellation before Python 3.12."""
        if self._pool is not None:
            self._time_limit = self._pool.connection_kwargs.get("socket_timeout")
            self._pool.connection_kwargs["socket_timeout"] = None

    async def send(self, calls: Sequence[Call]) -> list[Any]:
        """The replies to these calls, which go together, or redis-py's errors."""
        first, client = calls[0], self._client
        async with self._room:
            if monotonic_ns() >= self._renewal:
                await self.renew()
            try:
                async with timeout(self._time_limit):
                    if len(calls) == 1:
                        options = self._plain or options_of(client, first)
                        return [await client.execute_command(*first.words, **options)]
                    replies: list[Any] = await queued(client, calls).execute(raise_on_error=False)
                    return replies
            except Exception as error:  # noqa: BLE001 - it is raised again, if it is none of redis-py's
                return [redis_error(error)] * len(calls)

    async def renew(self) -> None:
        """Has all connections that are not in use closed."""
        self._renewal = next_renewal()
        if self._pool is not None:  # a cluster is asked anew by redis-py
            with suppress(TypeError):  # older blocking pools can't tell those in use
                await self._pool.disconnect(inuse_connections=False)


class AsyncDriver(AsyncVerbs, Store["asyncio.Redis | asyncio.RedisCluster", Any]):
    """Sends calls, and awaits the replies."""

    _CLIENTS = (asyncio.Redis, asyncio.RedisCluster)
    _RETRY = Retry
    _sender: AsyncSender
    #: Takes over the stored parameters, for ``open``; a store that is opened has it.
    _adopt: Callable[..., Coroutine[Any, Any, None]]
    _cluster_unknown: bool
    _batcher: Batcher

    @classmethod
    async def _open(
        cls, client: Any, name: str, options: ClientOptions, own: Mapping[str, Any], *adopted: Any
    ) -> Self:
        """A store that exists, with the parameters that it has."""
        store = cls._made(client, name, options, own)
        store._adopts = False  # noqa: SLF001 - its own; _adopt takes all parameters
        try:
            await store._adopt(*adopted)  # noqa: SLF001 - its own
        except BaseException:
            await store.aclose()
            raise
        return store

    def _begin(self) -> None:
        self._sender = AsyncSender(self.client)
        self._cluster_unknown = isinstance(self.client, asyncio.RedisCluster)
        self._batcher = Batcher()

    def _own_client(self) -> None:
        super()._own_client()
        self._sender.own_client()

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
        """Ends retries. Raises TBloomError in another event loop, where the client can't be closed."""
        self._batcher.check_loop()
        self._retry_for = 0.0
        if self._owned:
            # The server may have closed connections unnoticed, and nothing is sent again.
            await self._sender.renew()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def run(self, flow: Flow[T]) -> T:
        """The answer of a flow (``tbloom.engine.flow``), whose calls are sent as those of the verbs are."""
        if self._adopts:
            flow = self._adopting(flow)
        try:
            self._batcher.check_loop()
            if self._cluster_unknown:
                await self._meet_cluster()
            calls = next(flow)
            while True:
                replies: Sequence[Any] = await self._sender.send(calls) if len(calls) == 1 else []
                if not replies or isinstance(replies[0], Exception):
                    replies = await self._retried(calls, replies)
                calls = flow.send(replies)
        except StopIteration as stop:
            answer: T = stop.value
            return answer
        finally:
            flow.close()  # so that it notes an error or a cancellation

    async def _retried(self, calls: Sequence[Call], replies: Sequence[Any]) -> Sequence[Any]:
        """The replies to these calls; ``replies``: those that came, or nothing."""
        retries = self._retries(calls)
        while asked := retries.next_calls():
            retries.take(replies or await self._sender.send(asked))
            replies = []
            if retries.is_demoted:
                await self._sender.renew()
            if retries.waits:
                self._batcher.go_on()
                await sleep(retries.pause)
            if retries.waits and isinstance(self.client, asyncio.RedisCluster):
                with suppress(Exception):  # the next try tells
                    await self.client.nodes_manager.initialize()
        return retries.replies

"""The driver for asyncio: sends a flow's calls."""

from __future__ import annotations

import os
import sys
from asyncio import CancelledError, create_task, sleep, wait
from collections.abc import Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from redis import asyncio
from redis.asyncio.retry import Retry

from tbloom.engine.client import Store
from tbloom.engine.connections import options
from tbloom.engine.flow import Call, Flow
from tbloom.engine.forks import BeginsAnew
from tbloom.engine.pipeline import KeptPipeline
from tbloom.engine.retries import as_redis_error
from tbloom.engine.urls import make_client, parse_url
from tbloom.engine.verbs import AsyncVerbs

if TYPE_CHECKING:
    from typing_extensions import Self

T = TypeVar("T")
#: Before 3.12, ``wait_for``, with which redis-py sends where there is a time limit, may swallow a cancellation.
_SWALLOWS = sys.version_info < (3, 12)


class ForkedPool(BeginsAnew):
    """A client's pool, which begins anew in a forked child: redis-py's for asyncio would share its connections."""

    __slots__ = ("_pid", "_pool")

    #: Never closed: that would take them out of the selector, which is the parent's too.
    _parents: ClassVar[list[object]] = []

    def __init__(self, pool: asyncio.ConnectionPool) -> None:
        self._pool, self._pid = pool, os.getpid()
        super().__init__()

    def begin(self) -> None:
        """Empties the pool in a child."""
        if self._pid != os.getpid():
            self._parents.append(self._pool._available_connections)  # noqa: SLF001
            self._parents.extend(self._pool._in_use_connections)  # noqa: SLF001
            self._pool.reset()  # type: ignore[no-untyped-call]
            self._pid = os.getpid()


class AsyncDriver(AsyncVerbs, Store["asyncio.Redis | asyncio.RedisCluster", Any]):
    """Sends calls, and awaits the replies."""

    _CLIENTS = (asyncio.Redis, asyncio.RedisCluster)
    _kept: KeptPipeline | None = None

    def __init__(
        self, client: asyncio.Redis | asyncio.RedisCluster, *, retry_for: float | None
    ) -> None:
        super().__init__(client, retry_for=retry_for)
        self._cluster_unknown = isinstance(client, asyncio.RedisCluster)
        if isinstance(client, asyncio.Redis):
            self._pool = ForkedPool(client.connection_pool)

    @classmethod
    def _from_url(cls, url: str, name: str, arguments: Mapping[str, Any]) -> Self:
        address, cluster = parse_url(url)
        kind = asyncio.RedisCluster if cluster else asyncio.Redis
        made = make_client(kind.from_url, Retry, address)
        seen = cls(made, name, **arguments)  # type: ignore[call-arg,arg-type] # a store's own arguments
        seen._own_client()
        if seen._retry_for:  # the server may have closed the kept connection unnoticed
            seen._kept = KeptPipeline.of(seen.client)
        return seen

    async def _meet_cluster(self) -> None:
        """Counts the cluster's masters, which an asyncio client knows after its first connection only."""
        if isinstance(self.client, asyncio.RedisCluster):
            try:
                await self.client.initialize()
            except Exception as error:
                raise as_redis_error(error) from error
            if self._cluster_unknown:  # another task may have been faster
                self._spread(len(self.client.get_primaries()))
        self._cluster_unknown = False

    async def aclose(self) -> None:
        """Closes the client, if ``from_url`` made it."""
        await self._let_go()
        if self._owned:
            await self.client.aclose()

    async def _let_go(self) -> None:
        """Ends retries, and with them the kept connection."""
        self._retry_for = 0.0
        if self._kept is not None:
            kept, self._kept = self._kept, None
            await kept.let_go()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def run(self, flow: Flow[T]) -> T:
        """The answer of a flow (``tbloom.engine.flow``), whose calls are sent as those of the verbs are."""
        try:
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
        replies = await self._send_once(calls)
        for reply in replies:
            if isinstance(reply, Exception):
                break
        else:
            return replies
        retries = self._retries(calls)
        retries.take(replies)
        while retries.pending:
            await sleep(retries.pause)
            retries.take(await self._send_once(retries.pending))
        return retries.replies

    async def _send_once(self, calls: Sequence[Call]) -> Sequence[Any]:
        """Sends the calls once; the reply, or redis-py's error, to each."""
        try:
            kept = self._kept
            if kept is not None and (kept_replies := await kept.send(calls)):
                return kept_replies
            return await (_cancellable(self._execute(calls)) if _SWALLOWS else self._execute(calls))
        except Exception as error:  # noqa: BLE001 - Retries raises what is not retried
            return [error] * len(calls)

    async def _execute(self, calls: Sequence[Call]) -> Sequence[Any]:
        """Sends the calls through redis-py."""
        if len(calls) == 1:
            [call] = calls
            return [await self.client.execute_command(*call.words, **options(self.client, call))]
        async with self.client.pipeline(transaction=False) as pipeline:
            for call in calls:
                pipeline.execute_command(*call.words, **options(self.client, call))
            replies: Sequence[Any] = await pipeline.execute(raise_on_error=False)
            return replies


async def _cancellable(work: Coroutine[Any, Any, T]) -> T:
    """The result; a cancellation that ``work`` swallows is raised once it has ended."""
    task = create_task(work)
    try:
        await wait([task])
    except CancelledError:
        task.cancel()
        await wait([task])
        if not task.cancelled():
            task.exception()  # else asyncio logs an error that nobody has asked for
        raise
    return task.result()

"""The driver for asyncio: sends a flow's calls."""

from __future__ import annotations

from asyncio import sleep
from collections.abc import Sequence
from contextlib import suppress
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, TypeVar

from redis import asyncio
from redis.asyncio.retry import Retry

from tbloom.engine.async_connections import AsyncConnections, cancellable
from tbloom.engine.client import Store
from tbloom.engine.connections import CAN_KEEP, as_disconnected, in_turns, options
from tbloom.engine.flow import Call, Flow
from tbloom.engine.replicas import in_line, joined
from tbloom.engine.retries import as_redis_error
from tbloom.engine.together import Tasks, running_loop
from tbloom.engine.verbs import AsyncVerbs

if TYPE_CHECKING:
    from typing_extensions import Self

T = TypeVar("T")


class AsyncDriver(AsyncVerbs, Store["asyncio.Redis | asyncio.RedisCluster", Any]):
    """Sends calls, and awaits the replies."""

    _CLIENTS = (asyncio.Redis, asyncio.RedisCluster)
    _RETRY = Retry

    def __init__(
        self,
        client: asyncio.Redis | asyncio.RedisCluster,
        *,
        retry_for: float | None,
        replicas: int = 0,
    ) -> None:
        super().__init__(client, retry_for=retry_for, replicas=replicas)
        self._cluster_unknown = isinstance(client, asyncio.RedisCluster)
        self._connections = AsyncConnections(client)

    def _own_client(self) -> None:
        super()._own_client()
        # Not without retries: the server may have closed a kept connection unnoticed.
        self._connections.keeps = CAN_KEEP and not self._cluster_unknown and bool(self._retry_for)

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
        self._retry_for = 0.0
        await self._connections.let_go()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def _together(self) -> Tasks:
        """The tasks of this event loop whose items go together."""
        tasks = self._tasks  # read once: another thread's loop may put its own there
        if tasks is None or tasks.loop is not running_loop():
            tasks = self._tasks = Tasks()
        return tasks

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
        tasks = self._tasks
        if tasks is not None and tasks.loop is running_loop():
            tasks.go_on()
        while True:
            retries.take(replies)
            if retries.is_demoted:
                await self._connections.renew()
            if not retries.pending:
                return retries.replies
            await sleep(retries.pause)
            if self._replicas and isinstance(self.client, asyncio.RedisCluster):
                with suppress(Exception):  # the next try tells
                    await self.client.nodes_manager.initialize()
            replies = await self._send_once(retries.pending)

    async def _send_once(self, calls: Sequence[Call]) -> Sequence[Any]:
        """Sends the calls once; the reply, or redis-py's error, to each."""
        connections, commands, replies = self._connections, in_line(calls), dict[int, Any]()
        try:
            of_loop = connections.of_loop()
            async with of_loop.room:
                if monotonic_ns() >= of_loop.renewal:
                    await connections.renew()
                if connections.keeps:
                    await connections.send(commands, replies, of_loop)
                    return joined(calls, replies.values())
                for places in in_turns(self.client, calls):
                    turn = [commands[place] for place in places]
                    replies.update(zip(places, await cancellable(self._execute(turn)), strict=True))
        except Exception as error:  # noqa: BLE001 - Retries raises what is not retried
            lost = as_disconnected(error)
            return joined(calls, [replies.get(place, lost) for place in range(len(commands))])
        return joined(calls, [replies[place] for place in range(len(commands))])

    async def _execute(self, calls: Sequence[Call]) -> Sequence[Any]:
        """The replies to calls that redis-py sends together."""
        if len(calls) == 1:
            [call] = calls
            return [await self.client.execute_command(*call.words, **options(self.client, call))]
        async with self.client.pipeline(transaction=False) as pipeline:
            for call in calls:
                pipeline.execute_command(*call.words, **options(self.client, call))
            follow: dict[str, Any] = {}
            if isinstance(self.client, asyncio.RedisCluster) and any(call.behind for call in calls):
                # It would follow a slot that moves with the call, but not with WAIT.
                follow["allow_redirections"] = False
            replies: Sequence[Any] = await pipeline.execute(raise_on_error=False, **follow)
            return replies

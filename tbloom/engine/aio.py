"""The driver for asyncio."""

from __future__ import annotations

from asyncio import Future, get_running_loop, sleep, timeout, wait
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from math import inf
from time import monotonic
from typing import Any, Self, TypeVar

import redis
from redis import asyncio
from redis.asyncio.retry import Retry

from tbloom.engine.batcher import Batcher
from tbloom.engine.client import Store
from tbloom.engine.flow import YIELDS_PER_TURN, Call, Flow, give_up
from tbloom.engine.methods import AsyncVerbs
from tbloom.engine.retries import as_redis_error
from tbloom.engine.semaphore import LAST_LOOK
from tbloom.engine.sending import (
    BYTES,
    is_cluster,
    most_calls,
    next_renewal,
    no_turn,
    options_of,
    queued,
    redis_error,
    time_out,
)
from tbloom.engine.urls import ClientOptions

T = TypeVar("T")


class AsyncSender:
    """A sender of calls through one client, for the tasks of one event loop."""

    def __init__(self, client: asyncio.Redis | asyncio.RedisCluster) -> None:
        self._client: Any = client
        self._is_cluster = is_cluster(client)
        #: True: nothing else uses the client, so that we may close its idle connections.
        self._is_own = False
        #: The time limit for replies (s); None: redis-py limits the time itself.
        self._time_limit: float | None = None
        #: How long a call waits for its reply (s), and when the last one came (monotonic).
        self.time_out: float = time_out(client)
        self.answered: float = 0.0
        self._renew_at = next_renewal()

    def own_client(self) -> None:
        """Note that nothing else uses the client, and limit the time for replies in redis-py's place.

        redis-py would start a task for each request, which may swallow a cancellation before Python 3.12.
        """
        self._is_own = True
        if not self._is_cluster:
            options = self._client.connection_pool.connection_kwargs
            self._time_limit, options["socket_timeout"] = options.get("socket_timeout"), None

    async def send(self, calls: Sequence[Call], now: float = 0.0) -> list[Any]:
        """Send these calls together and return their replies, or redis-py's errors. ``now`` is the time (monotonic)."""
        first, client = calls[0], self._client
        try:
            if now >= self._renew_at:
                self._renew_at = next_renewal()
                await self.close_idle()
            async with timeout(self._time_limit):
                if len(calls) == 1:
                    options = options_of(client, first) if self._is_cluster else BYTES
                    replies = [await client.execute_command(*first.command, **options)]
                else:
                    replies = await queued(client, calls).execute(raise_on_error=False)
        except Exception as error:  # noqa: BLE001 - redis_error re-raises errors that are not redis-py's
            if not isinstance(error, redis.ResponseError):  # all other connections may be lost, too
                await self.close_idle()
            return [redis_error(error)] * len(calls)
        self.answered = monotonic()
        return replies

    async def close_idle(self) -> None:
        """Close the idle connections of our own client, unless it is a cluster's, which redis-py follows itself.

        The pool's own ``disconnect`` waits for an answer: for half a minute over TLS where the network is silent, and
        one task that is cancelled there cancels all others that wait for the same connection.
        """
        if self._is_own and not self._is_cluster:
            pool = self._client.connection_pool
            for connection in tuple(getattr(pool, "_available_connections", ())):
                with suppress(OSError, redis.RedisError):
                    await connection.disconnect(nowait=True)


class Turns:
    """So many turns to send calls. The tasks that wait for one get theirs in the order in which they came."""

    def __init__(self, most: int) -> None:
        self._free = most
        #: Those that wait, in order.
        self._waiting: dict[Future[None], None] = {}

    async def acquire(self, left: Callable[[float], float], since: float) -> None:
        """Take a turn, or wait for one. See ``FairSemaphore.acquire``."""
        if self._free:
            self._free -= 1
            return
        mine, is_over = get_running_loop().create_future(), False
        self._waiting[mine] = None
        try:
            while not mine.done():
                more = left(since)
                if is_over and more <= 0:
                    raise no_turn()  # noqa: TRY301 - what has failed leaves the line below
                is_over = more <= 0
                await wait([mine], timeout=None if more == inf else max(more, LAST_LOOK))
        except BaseException:
            if self._waiting.pop(mine, mine) is mine:  # it has got a turn
                self.release()
            raise

    def release(self) -> None:
        """Give a turn back."""
        if self._waiting:
            first = next(iter(self._waiting))
            del self._waiting[first]
            first.set_result(None)
        else:
            self._free += 1


class Turn:
    """A flow's turn to send a few calls.

    There are as many as the client may have connections. A flow waits for one before it begins, so that the time of its calls does
    not run meanwhile, and thousands of flows do not each ask the server what the first ones have learned. A flow has none while
    it pauses before a further try, so that an outage holds up no other one.
    """

    __slots__ = ("_calls", "_may_wait", "_turns")

    def __init__(self, turns: Turns, left: Callable[[float], float]) -> None:
        self._turns, self._may_wait, self._calls = turns, left, 0

    async def next(self, since: float) -> None:
        """Wait until the flow may send its next calls, for which it has waited since then."""
        if self._calls > 1:
            self._calls -= 1
            return
        self.end()
        await self._turns.acquire(self._may_wait, since)
        self._calls = YIELDS_PER_TURN

    def end(self) -> None:
        """Let another flow have the turn, unless it has ended."""
        if self._calls:
            self._calls = 0
            self._turns.release()


class AsyncDriver(AsyncVerbs, Store["asyncio.Redis | asyncio.RedisCluster", Any]):
    """A store whose methods await the reply."""

    _CLIENTS = (asyncio.Redis, asyncio.RedisCluster)
    _RETRY = Retry
    _sender: AsyncSender
    #: Load the stored parameters, for ``open``. Only stores with an ``open`` define it.
    _load_parameters: Callable[..., Coroutine[Any, Any, None]]
    _cluster_unknown: bool
    _batcher: Batcher

    @classmethod
    async def _open(
        cls, client: Any, name: str, options: ClientOptions, own: Mapping[str, Any], *given: Any
    ) -> Self:
        """Open an existing store with its stored parameters."""
        store = cls._for_client_or_url(client, name, options, own)
        try:
            await store._load_parameters(*given)  # noqa: SLF001 - its own
        except BaseException:
            await store.aclose()
            raise
        return store

    def _set_up_driver(self) -> None:
        self._sender = AsyncSender(self.client)
        self._turns = Turns(most_calls(self.client))
        self._cluster_unknown = is_cluster(self.client)
        self._batcher = Batcher()

    def _own_client(self) -> None:
        super()._own_client()
        self._sender.own_client()

    async def _meet_cluster(self) -> None:
        """Count the cluster's masters. An asyncio client does not know them before its first connection."""
        cluster: Any = self.client
        try:
            await cluster.initialize()
        except Exception as error:  # noqa: BLE001 - it is raised again
            raise as_redis_error(error)  # noqa: B904 - it may be the same error
        if self._cluster_unknown:  # another task may have been faster
            self._on_cluster(len(cluster.get_primaries()))
            self._cluster_unknown = False

    async def aclose(self) -> None:
        """Close the client, if ``from_url`` made it. Later calls raise TBloomError."""
        await self._stop_retrying()
        self._is_closed = True
        if self._owned:
            await self.client.aclose()

    async def _stop_retrying(self) -> None:
        """Stop retrying. Raise TBloomError in another event loop, where the client can't be closed."""
        self._batcher.check_loop()
        self._retry_for = 0.0
        if self._owned:
            # The server may have closed connections unnoticed, and later calls are not retried.
            await self._sender.close_idle()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def run(self, flow: Flow[T], since: float = 0.0) -> T:
        """Run a flow (``tbloom.engine.flow``) and return its result. It waits for its turn before it begins.

        ``since``: when its first caller has begun to wait (monotonic), if that was earlier.
        """
        turn, has_begun, since = Turn(self._turns, self._left), False, since or monotonic()
        try:
            self._batcher.check_loop()
            await turn.next(since)
            flow = self._to_run(flow)
            if self._cluster_unknown:
                await self._meet_cluster()
            has_begun = True
            calls = next(flow)
            while True:
                replies: Sequence[Any] = []
                began = monotonic()
                if len(calls) == 1:
                    replies = await self._sender.send(calls, began)
                if not replies or isinstance(replies[0], Exception):
                    replies = await self._retried(calls, replies, began, since, turn)
                calls = flow.send(replies)
                since = monotonic()
                await turn.next(since)
        except StopIteration as stop:
            answer: T = stop.value
            return answer
        finally:
            turn.end()
            # After an error or a cancellation, the flow stores the lost answers.
            flow.close() if has_begun else give_up(flow)

    async def _retried(
        self,
        calls: Sequence[Call],
        replies: Sequence[Any],
        began: float,
        since: float,
        turn: Turn,
    ) -> Sequence[Any]:
        """Return the replies to these calls, with retries. Before a pause, the flow's turn ends; it waits for another one.

        ``replies`` has the first attempt's replies; it is empty if nothing was sent.
        """
        retries = self._retries(calls, began, since)
        while to_send := retries.next_calls():
            retries.record(replies or await self._sender.send(to_send, monotonic()))
            replies = []
            if retries.is_demoted:
                await self._sender.close_idle()
            if retries.waits:
                turn.end()
                self._batcher.send_waiting()
                await sleep(retries.pause)
                client: Any = self.client
                if is_cluster(client):
                    with suppress(Exception):  # the next try fails too, and is retried or raised
                        await client.nodes_manager.initialize()
                await turn.next(retries.began)
        return retries.replies

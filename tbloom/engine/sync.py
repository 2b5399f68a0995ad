"""The driver for threads and processes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from threading import get_ident
from time import monotonic, sleep
from typing import Any, Self, TypeVar

import redis
from redis.retry import Retry

from tbloom.engine.client import Store
from tbloom.engine.flow import YIELDS_PER_TURN, Call, Flow, give_up
from tbloom.engine.forks import ResetsInChild
from tbloom.engine.methods import SyncVerbs
from tbloom.engine.semaphore import FairSemaphore
from tbloom.engine.sending import (
    BYTES,
    is_cluster,
    most_calls,
    next_renewal,
    options_of,
    queued,
    redis_error,
    time_out,
)
from tbloom.engine.urls import ClientOptions

T = TypeVar("T")


class Sender(ResetsInChild):
    """A sender of calls through one client, for any number of threads.

    If the client is our own, single calls reuse a kept client with one connection (``redis.Redis.client``), because to take one
    from the pool costs a third more. If the server has closed a kept connection, the next call fails. So kept connections need
    retries.
    """

    __slots__ = (
        "_client",
        "_is_cluster",
        "_kept",
        "_renew_at",
        "answered",
        "is_own",
        "keeps",
        "time_out",
        "turns",
    )

    def __init__(self, client: redis.Redis | redis.RedisCluster) -> None:
        self._client: Any = client
        self._is_cluster = is_cluster(client)
        #: How long a call waits for its reply (s), and when the last one came (monotonic).
        self.time_out: float = time_out(client)
        self.answered: float = 0.0
        #: True: nothing else uses the client, so that we may close its idle connections.
        self.is_own: bool = False
        #: True: connections are kept from call to call.
        self.keeps: bool = False
        super().__init__()

    def reset(self) -> None:
        """Start without connections. In a forked child, the old ones are its parent's."""
        self._kept = deque[Any]()
        #: Held by flows while they send a few calls, where redis-py would raise MaxConnectionsError. A flow that retries a call
        #: lets others have the turn meanwhile, as in ``aio.Turn``.
        self.turns: FairSemaphore = FairSemaphore(most_calls(self._client))
        self._renew_at = next_renewal()

    def send(self, calls: Sequence[Call], now: float = 0.0) -> list[Any]:
        """Send these calls together and return their replies, or redis-py's errors. ``now`` is the time (monotonic)."""
        first, client, kept = calls[0], self._client, None
        if now >= self._renew_at:
            self._renew_at = next_renewal()
            self.close_idle()
        try:
            if len(calls) == 1:
                options = options_of(client, first) if self._is_cluster else BYTES
                if not self.keeps:
                    reply = client.execute_command(*first.command, **options)
                else:
                    with suppress(IndexError):
                        kept = self._kept.pop()
                    kept = kept or client.client()
                    reply = kept.execute_command(*first.command, **options)
                    self._kept.append(kept)
                replies = [reply]
            else:
                with suppress(IndexError):  # return a connection for the pipeline to use
                    self._kept.pop().close()
                with queued(client, calls) as pipeline:
                    replies = pipeline.execute(raise_on_error=False)
        except BaseException as error:  # noqa: BLE001 - redis_error re-raises errors that are not redis-py's
            if kept is not None:
                kept.close()
            # After a lost connection, all others may be lost. After an interrupt, a late reply may arrive on one.
            if not isinstance(error, redis.ResponseError):
                self.close_idle()
            return [redis_error(error)] * len(calls)
        self.answered = monotonic()
        return replies

    def release_kept(self) -> None:
        """Give the kept connections back to the pool."""
        kept = self._kept
        with suppress(IndexError):  # another thread may have taken the last one
            while True:
                kept.pop().close()

    def close_idle(self) -> None:
        """Close the idle connections of our own client, unless it is a cluster's, which redis-py follows itself."""
        if self.is_own and not self._is_cluster:
            self.release_kept()
            with suppress(TypeError):  # older blocking pools can't tell those in use
                self._client.connection_pool.disconnect(inuse_connections=False)


class SyncDriver(SyncVerbs, Store["redis.Redis | redis.RedisCluster", Any]):
    """A store whose methods block until they have the reply."""

    _CLIENTS = (redis.Redis, redis.RedisCluster)
    _RETRY = Retry
    _sender: Sender
    #: Load the stored parameters, for ``open``. Only stores with an ``open`` define it.
    _load_parameters: Callable[..., None]

    def _own_client(self) -> None:
        super()._own_client()
        self.keep_connections()

    @classmethod
    def _open(
        cls, client: Any, name: str, options: ClientOptions, own: Mapping[str, Any], *given: Any
    ) -> Self:
        """Open an existing store with its stored parameters."""
        store = cls._for_client_or_url(client, name, options, own)
        try:
            store._load_parameters(*given)  # noqa: SLF001 - its own
        except BaseException:
            store.close()
            raise
        return store

    def _set_up_driver(self) -> None:
        self._sender = Sender(self.client)
        client: Any = self.client
        if is_cluster(client):
            self._on_cluster(len(client.get_primaries()))

    def keep_connections(self) -> None:
        """Keep connections from call to call. Nothing else may use the client.

        With ``retry_for=0``, keep none: the server may have closed a kept connection unnoticed.
        """
        self._sender.is_own = True
        self._sender.keeps = bool(self._retry_for) and not is_cluster(self.client)

    def close(self) -> None:
        """Close the client, if ``from_url`` made it. Later calls raise TBloomError."""
        self._stop_retrying()
        self._is_closed = True
        if self._owned:
            self.client.close()

    def _stop_retrying(self) -> None:
        """Stop retrying, and give the kept connections back, because they need retries."""
        self._retry_for, self._sender.keeps = 0.0, False
        self._sender.release_kept()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, flow: Flow[T]) -> T:
        """Run a flow (``tbloom.engine.flow``) and return its result. It waits for its turn before it begins."""
        turns, thread, has_begun = self._sender.turns, get_ident(), False
        since = monotonic()
        # A signal handler, or the garbage collector, may run a flow in the middle of another one. It has that one's turn.
        waits = thread not in turns.holders
        try:
            if waits:
                turns.acquire(thread, self._left, since)
            flow = self._to_run(flow)
            has_begun = True
            calls, left = next(flow), YIELDS_PER_TURN
            while True:
                replies: Sequence[Any] = []
                began = monotonic()
                if len(calls) == 1:
                    replies = self._sender.send(calls, began)
                if not replies or isinstance(replies[0], Exception):
                    replies = self._retried(calls, replies, began, since)
                calls, left = flow.send(replies), left - 1
                if waits and not left:
                    turns.release(thread)
                    since = monotonic()
                    turns.acquire(thread, self._left, since)
                    left = YIELDS_PER_TURN
        except StopIteration as stop:
            answer: T = stop.value
            return answer
        finally:
            if waits:
                turns.release(thread)
            # After an error, the flow stores the lost answers.
            flow.close() if has_begun else give_up(flow)

    def _retried(
        self, calls: Sequence[Call], replies: Sequence[Any], began: float, since: float
    ) -> Sequence[Any]:
        """Return the replies to these calls, with retries. Before a pause, the flow's turn ends; it waits for another one.

        ``replies`` has the first attempt's replies; it is empty if nothing was sent.
        """
        retries, turns = self._retries(calls, began, since), self._sender.turns
        while to_send := retries.next_calls():
            retries.record(replies or self._sender.send(to_send, monotonic()))
            replies = []
            if retries.is_demoted:
                self._sender.close_idle()
            if retries.waits:
                turns.release(get_ident())
                sleep(retries.pause)
                client: Any = self.client
                if is_cluster(client):
                    with suppress(Exception):  # the next try fails too, and is retried or raised
                        client.nodes_manager.initialize()
                turns.acquire(get_ident(), self._left, retries.began)
        return retries.replies

"""The driver for threads and processes: sends a flow's calls."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from time import monotonic_ns, sleep
from typing import TYPE_CHECKING, Any, TypeVar

import redis
from redis.retry import Retry

from tbloom.engine.client import Store
from tbloom.engine.flow import Call, Flow, ScriptCall
from tbloom.engine.forks import BeginsAnew
from tbloom.engine.replicas import reply_of
from tbloom.engine.sending import (
    AT_ONCE,
    BYTES,
    are_lost,
    by_place,
    is_cluster,
    next_renewal,
    options_of,
    redis_error,
    rounds,
)
from tbloom.engine.urls import ClientOptions
from tbloom.engine.verbs import SyncVerbs

if TYPE_CHECKING:
    from typing_extensions import Self

T = TypeVar("T")


class Sender(BeginsAnew):
    """Sends calls through one client, for any number of threads.

    Where nothing else uses the client (``keeps``), a single call goes through a kept client with one connection
    (``redis.Redis.client``): to take a connection from the pool, and check it, is half of what a call costs. If the server has
    closed a kept connection, the next call fails, so this needs retries.
    """

    __slots__ = ("_client", "_is_plain", "_kept", "_renewal", "keeps")

    def __init__(self, client: redis.Redis | redis.RedisCluster) -> None:
        self._client: Any = client
        self._is_plain = not is_cluster(client)
        self.keeps: bool = False
        super().__init__()

    def begin(self) -> None:
        """Keeps none in a forked child: their connections are its parent's."""
        self._kept = deque[Any]()
        #: When connections are closed, so that the address is asked anew (ns, by the monotonic clock).
        self._renewal = next_renewal()

    def send(self, calls: Sequence[Call], at_once: int = AT_ONCE) -> list[Any]:
        """The reply to each call, or redis-py's error; ``at_once``: how many of a node's are on their way."""
        if len(calls) == 1 or any(call.behind for call in calls):
            return [*map(self.ask, calls)]
        came = list[tuple[list[int], list[Any]]]()
        for places in rounds(self._client, calls, at_once):
            asked = [calls[place] for place in places]
            came.append((places, self._send_together(self._client, asked)))
            if are_lost(came[-1][1]):
                break
        return by_place(calls, came)

    def ask(self, call: Call) -> Any:
        """The reply to a call, or redis-py's error."""
        if monotonic_ns() >= self._renewal:
            self.renew()
        if call.behind:
            return self._ask_with_wait(call)
        kept, client = self._kept, self._client
        try:
            if self.keeps:
                try:
                    client = kept.pop()
                except IndexError:
                    client = client.client()
            is_plain = self._is_plain and isinstance(call, ScriptCall)
            options = BYTES if is_plain else options_of(self._client, call)
            reply = client.execute_command(*call.words, **options)
        except BaseException as error:  # noqa: BLE001 - an interrupt is raised again
            if client is not self._client:
                client.close()
            return self._failed(error)
        if client is not self._client:
            kept.append(client)
        return reply

    def _send_together(self, client: Any, calls: Sequence[Call]) -> list[Any]:
        try:
            with client.pipeline(transaction=False) as pipeline:
                for call in calls:
                    pipeline.execute_command(*call.words, **options_of(client, call))
                replies: list[Any] = pipeline.execute(raise_on_error=False)
                return replies
        except BaseException as error:  # noqa: BLE001 - an interrupt is raised again
            return [self._failed(error)] * len(calls)

    def _ask_with_wait(self, call: Call) -> Any:
        """WAIT goes with the call on its connection, of one node."""
        client = self._client
        if is_cluster(client):
            client = client.get_redis_connection(client.get_node_from_key(call.key))
        return reply_of(call, self._send_together(client, [call, *call.behind]))

    def _failed(self, error: BaseException) -> Exception:
        """The error that has ended a call; raises what is none of redis-py's."""
        try:
            self.let_go()  # the server may have closed these too; the pool checks them
            return redis_error(error)
        except BaseException:
            self.renew()  # an interrupt: the reply may still come over a connection that the pool has again
            raise

    def let_go(self) -> None:
        """Gives the kept connections back to the pool."""
        kept = self._kept
        with suppress(IndexError):  # another thread may have taken the last one
            while True:
                kept.pop().close()

    def renew(self) -> None:
        """Has all connections that are not in use closed."""
        self._renewal = next_renewal()
        self.let_go()
        pool = getattr(self._client, "connection_pool", None)  # a cluster is asked anew by redis-py
        if pool is not None:
            with suppress(TypeError):  # older blocking pools can't tell those in use
                pool.disconnect(inuse_connections=False)


class SyncDriver(SyncVerbs, Store["redis.Redis | redis.RedisCluster", Any]):
    """Sends calls, and waits for the replies."""

    _CLIENTS = (redis.Redis, redis.RedisCluster)
    _RETRY = Retry
    _sender: Sender
    #: Takes over the stored parameters, for ``open``; a store that is opened has it.
    _adopt: Callable[..., None]

    def _own_client(self) -> None:
        super()._own_client()
        self.keep_connections()

    @classmethod
    def _open(
        cls, client: Any, name: str, options: ClientOptions, own: Mapping[str, Any], *adopted: Any
    ) -> Self:
        """A store that exists, with the parameters that it has."""
        store = cls._made(client, name, options, own)
        try:
            store._adopt(*adopted)  # noqa: SLF001 - its own
        except BaseException:
            store.close()
            raise
        return store

    def _begin(self) -> None:
        self._sender = Sender(self.client)
        if isinstance(self.client, redis.RedisCluster):
            self._spread(len(self.client.get_primaries()))  # type: ignore[no-untyped-call]

    def keep_connections(self) -> None:
        """Keeps connections from call to call: nothing else uses the client. With ``retry_for=0`` it keeps none, because
        the server may have closed a kept one unnoticed."""
        self._sender.keeps = bool(self._retry_for) and isinstance(self.client, redis.Redis)

    def close(self) -> None:
        """Closes the client, if ``from_url`` made it."""
        self._let_go()
        if self._owned:
            self.client.close()

    def _let_go(self) -> None:
        """Ends retries, and with them the kept connections."""
        self._retry_for, self._sender.keeps = 0.0, False
        self._sender.let_go()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, flow: Flow[T]) -> T:
        """The answer of a flow (``tbloom.engine.flow``), whose calls are sent as those of the verbs are."""
        try:
            calls = next(flow)
            while True:
                calls = flow.send(self._send(calls))
        except StopIteration as stop:
            answer: T = stop.value
            return answer
        finally:
            flow.close()  # so that it notes an error or a cancellation

    def _send(self, calls: Sequence[Call]) -> Sequence[Any]:
        if len(calls) == 1:
            replies = [self._sender.ask(calls[0])]
            if not isinstance(replies[0], Exception):
                return replies
        else:
            replies = self._sender.send(calls)
        retries = self._retries(calls)
        while True:
            retries.take(replies)
            if retries.is_demoted:
                self._sender.renew()
            if not retries.unanswered:
                return retries.replies
            if retries.waits:
                sleep(retries.pause)
            if retries.waits and isinstance(self.client, redis.RedisCluster):
                with suppress(Exception):  # the next try tells
                    self.client.nodes_manager.initialize()
            replies = self._sender.send(retries.unanswered)

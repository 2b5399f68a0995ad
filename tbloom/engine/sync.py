"""The driver for threads and processes: sends a flow's calls."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from time import monotonic_ns, sleep
from typing import TYPE_CHECKING, Any, TypeVar

import redis
from redis.retry import Retry

from tbloom.engine.client import Store
from tbloom.engine.connections import (
    CAN_KEEP,
    IN_BYTES,
    KeptConnections,
    as_disconnected,
    close_and_mark,
    in_turns,
    next_renewal,
    options,
)
from tbloom.engine.flow import Call, Command, Flow
from tbloom.engine.replicas import in_line, joined
from tbloom.engine.verbs import SyncVerbs

if TYPE_CHECKING:
    from typing_extensions import Self

T = TypeVar("T")


class SyncDriver(SyncVerbs, Store["redis.Redis | redis.RedisCluster", Any]):
    """Sends calls, and waits for the replies."""

    _CLIENTS = (redis.Redis, redis.RedisCluster)
    _RETRY = Retry
    _kept: KeptConnections | None = None

    def _own_client(self) -> None:
        super()._own_client()
        self.keep_connections()

    def _begin(self) -> None:
        if isinstance(self.client, redis.RedisCluster):
            self._spread(len(self.client.get_primaries()))  # type: ignore[no-untyped-call]

    def close(self) -> None:
        """Closes the client, if ``from_url`` made it."""
        self._retry_for = 0.0
        self.keep_connections()  # retry_for is 0 now, so none
        if self._owned:
            self.client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def keep_connections(self) -> None:
        """Keeps connections from call to call, if nothing else uses the client. With ``retry_for=0`` it keeps none,
        because the server may have closed a kept one unnoticed."""
        before, self._kept = self._kept, None
        if CAN_KEEP and self._retry_for and isinstance(self.client, redis.Redis):
            self._kept = KeptConnections(self.client.connection_pool)
        if before is not None:
            before.let_go()

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
        replies = self._send_once(calls)
        for reply in replies:
            if isinstance(reply, Exception):
                break
        else:
            return replies
        retries = self._retries(calls)
        while True:
            retries.take(replies)
            if retries.is_demoted:
                self._renew()
            if not retries.pending:
                return retries.replies
            sleep(retries.pause)
            if self._replicas and isinstance(self.client, redis.RedisCluster):
                with suppress(Exception):  # the next try tells
                    self.client.nodes_manager.initialize()
            replies = self._send_once(retries.pending)

    def _send_once(self, calls: Sequence[Call]) -> Sequence[Any]:
        """Sends the calls once; the reply, or redis-py's error, to each."""
        commands, replies = in_line(calls), dict[int, Any]()
        try:
            if monotonic_ns() >= self._renewal:
                self._renew()
            if self._kept is not None:
                self._kept.send(commands, replies)
                return joined(calls, replies.values())
            for places in in_turns(self.client, calls):
                turn = [commands[place] for place in places]
                replies.update(zip(places, self._execute(turn), strict=True))
        except BaseException as error:
            if not isinstance(error, redis.RedisError):
                # An interrupt: redis-py has given a connection back whose reply is still to come, for the next call.
                self._close_free()
            if not isinstance(error, Exception):
                raise
            lost = as_disconnected(error)  # Retries raises what is not retried
            return joined(calls, [replies.get(place, lost) for place in range(len(commands))])
        return joined(calls, [replies[place] for place in range(len(commands))])

    def _execute(self, calls: Sequence[Call]) -> Sequence[Any]:
        """The replies to calls that redis-py sends together."""
        if len(calls) == 1:
            [call] = calls
            # Without a script call's node, so that redis-py follows slots that move.
            given = options(self.client, call) if type(call) is Command else IN_BYTES
            return [self.client.execute_command(*call.words, **given)]  # type: ignore[no-untyped-call]
        client: Any = self.client
        if isinstance(client, redis.RedisCluster) and any(call.behind for call in calls):
            # A cluster's pipeline would follow a slot that moves with the call, but not with WAIT.
            node = client.get_node_from_key(calls[0].key)  # type: ignore[no-untyped-call]
            client = client.get_redis_connection(node)
        with client.pipeline(transaction=False) as pipeline:
            for call in calls:
                pipeline.execute_command(*call.words, **options(client, call))
            replies: Sequence[Any] = pipeline.execute(raise_on_error=False)
            return replies

    def _renew(self) -> None:
        """Closes the free connections, and those in use when they come back. (A cluster's nodes say where the master is.)"""
        self._renewal = next_renewal()
        if isinstance(self.client, redis.RedisCluster):
            return
        if self._kept is not None:
            self._kept.renew()
        close_and_mark(self.client.connection_pool)

    def _close_free(self) -> None:
        """Closes the connections that are free in redis-py's pools."""
        client = self.client
        nodes: list[Any] = [client]
        if isinstance(client, redis.RedisCluster):
            nodes = [node.redis_connection for node in client.get_nodes()]  # type: ignore[no-untyped-call]
        for pool in [node.connection_pool for node in nodes if node is not None]:
            try:
                pool.disconnect(inuse_connections=False)
            except TypeError:  # noqa: PERF203 - redis-py 5: a blocking pool disconnects all
                pool.disconnect()

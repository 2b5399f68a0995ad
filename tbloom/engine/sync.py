"""The driver for threads and processes: sends a flow's calls."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from time import sleep
from typing import TYPE_CHECKING, Any, TypeVar

import redis
from redis.retry import Retry

from tbloom.engine.client import Store
from tbloom.engine.connections import Connections
from tbloom.engine.flow import Call, Flow
from tbloom.engine.verbs import SyncVerbs

if TYPE_CHECKING:
    from typing_extensions import Self

T = TypeVar("T")


class SyncDriver(SyncVerbs, Store["redis.Redis | redis.RedisCluster", Any]):
    """Sends calls, and waits for the replies."""

    _CLIENTS = (redis.Redis, redis.RedisCluster)
    _RETRY = Retry
    _connections: Connections

    def _own_client(self) -> None:
        super()._own_client()
        self.keep_connections()

    def _begin(self) -> None:
        self._connections = Connections(self.client)
        if isinstance(self.client, redis.RedisCluster):
            self._spread(len(self.client.get_primaries()))  # type: ignore[no-untyped-call]

    def keep_connections(self) -> None:
        """Keeps connections from call to call: nothing else uses the client. With ``retry_for=0`` it keeps none, because
        the server may have closed a kept one unnoticed."""
        self._connections.keeps = bool(self._retry_for) and isinstance(self.client, redis.Redis)

    def close(self) -> None:
        """Closes the client, if ``from_url`` made it."""
        self._let_go()
        if self._owned:
            self.client.close()

    def _let_go(self) -> None:
        """Ends retries, and with them the kept connections."""
        self._retry_for, self._connections.keeps = 0.0, False
        self._connections.let_go()

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
        retries = self._retries(calls)
        while True:
            retries.take(self._connections.send(retries.pending))
            if retries.is_demoted:
                self._connections.renew()
            if not retries.pending:
                return retries.replies
            if retries.waits:
                sleep(retries.pause)
            if retries.waits and isinstance(self.client, redis.RedisCluster):
                with suppress(Exception):  # the next try tells
                    self.client.nodes_manager.initialize()

"""How threads and processes send a flow's calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, TypeVar

import redis
from redis.retry import Retry

from tbloom.engine.client import Caller
from tbloom.engine.connections import Wire, target
from tbloom.engine.flow import Call, Flow
from tbloom.engine.retries import have_failed
from tbloom.engine.urls import make_client, parse_url
from tbloom.errors import TBloomError

if TYPE_CHECKING:
    from typing_extensions import Self

T = TypeVar("T")


class SyncDriver(Caller["redis.Redis | redis.RedisCluster"]):
    """Sends calls, and waits for the replies."""

    _CLIENTS = (redis.Redis, redis.RedisCluster)
    _wire: Wire | None = None

    @classmethod
    def _from_url(cls, url: str, name: str, arguments: Mapping[str, Any]) -> Self:
        address, cluster = parse_url(url)
        kind = redis.RedisCluster if cluster else redis.Redis
        seen = cls(make_client(kind.from_url, Retry, address), name, **arguments)
        seen._own_client()
        seen.keep_connections()
        return seen

    def _meet_cluster(self) -> None:
        if isinstance(self.client, redis.RedisCluster):
            self._spread(len(self.client.get_primaries()))  # type: ignore[no-untyped-call]

    def close(self) -> None:
        """Closes the client, if ``from_url`` made it."""
        self._retry_for = 0.0
        self.keep_connections()  # none from now on
        if self._owned:
            self.client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def keep_connections(self) -> None:
        """Keeps connections from call to call, for a client that nobody else uses, as ``from_url``'s; with
        ``retry_for`` 0 none, because a kept one may be lost unnoticed."""
        before, self._wire = self._wire, Wire.of(self.client) if self._retry_for else None
        if before is not None:
            before.let_go()

    def _run(self, flow: Flow[T], *guess: T) -> T:
        """The flow's answer; with a ``guess``, that while the server does not answer."""
        asked = False
        try:
            try:
                calls = next(flow)
                while not guess or asked or self.circuit.lets_through():
                    replies = self._send(calls)
                    asked = True
                    calls = flow.send(replies)
            except StopIteration as stop:
                if asked:
                    self.circuit.worked()
                answer: T = stop.value
                return answer
            except (redis.RedisError, TBloomError) as error:
                if not self._is_lost(error, asked=asked) or not guess:
                    raise
            self._told_by_guess(flow)
            return guess[0]
        finally:
            flow.close()  # tells it of an error or a cancellation here

    def _send(self, calls: Sequence[Call]) -> Sequence[Any]:
        began, replies = monotonic(), self._exchange(calls)
        if not have_failed(replies):
            return replies
        trip = self._trip(calls, began)
        trip.take(replies)
        while trip.pending:
            sleep(trip.pause)
            trip.take(self._exchange(trip.pending))
        return trip.replies

    def _exchange(self, calls: Sequence[Call]) -> Sequence[Any]:
        """Sends the calls once; the reply, or redis-py's error, to each."""
        try:
            wire = self._wire
            if wire is not None and (told := wire.exchange(calls)):
                return told
            if len(calls) == 1:
                return [self.client.execute_command(*calls[0].words)]  # type: ignore[no-untyped-call]
            with self.client.pipeline(transaction=False) as pipeline:
                for call in calls:
                    pipeline.execute_command(*call.words, **target(self.client, call))
                replies: Sequence[Any] = pipeline.execute(raise_on_error=False)
                return replies
        except Exception as error:  # noqa: BLE001 - Trip raises those that are not for it
            return [error] * len(calls)

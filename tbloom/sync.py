"""The filter for threads and processes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from time import sleep
from typing import TYPE_CHECKING, Any, TypeVar

import redis
from redis.retry import Retry

from tbloom.base import RESENDS, Base, Trip, backoff, parse_url
from tbloom.calls import Call, Flow, ScriptCall
from tbloom.hashing import Item
from tbloom.info import FilterInfo

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from tbloom.config import Parameters

T = TypeVar("T")


class TimeBloom(Base["redis.Redis | redis.RedisCluster"]):
    """A set of recently seen items, shared through Redis: a Bloom filter per time slice.

    Safe to use from many threads, and after a fork. Each verb may raise redis-py's errors,
    ``ConfigMismatch`` where the filter is stored with other parameters, and ``ConfigError``
    for an argument that can't be right, such as an empty item.
    """

    _CLIENTS = (redis.Redis, redis.RedisCluster)
    _OTHER = "AsyncTimeBloom"

    @classmethod
    def from_url(cls, url: str, name: str, **parameters: Unpack[Parameters]) -> TimeBloom:
        """A filter with a client of its own, closed by ``close()``; ``parameters`` as for the class.

        ``url`` is redis-py's; ``redis+cluster://host:port`` reaches a cluster by one of its nodes.
        The client resends a call up to 10 times when the connection fails. Each gets the first
        answer.
        """
        address, cluster = parse_url(url)
        kind = redis.RedisCluster if cluster else redis.Redis
        seen = cls(kind.from_url(address, retry=Retry(backoff(), RESENDS)), name, **parameters)
        seen._owned = True
        return seen

    def __init__(
        self,
        client: redis.Redis | redis.RedisCluster,
        name: str,
        **parameters: Unpack[Parameters],
    ) -> None:
        super().__init__(client, name, **parameters)
        if isinstance(client, redis.RedisCluster):
            self._spread(len(client.get_primaries()))  # type: ignore[no-untyped-call]

    __init__.__doc__ = Base.__init__.__doc__

    def add(self, item: Item, within: int | None = None) -> bool:
        """True: the item is new, and remembered from now on. False: seen within the window.

        With ``within``, only the newest so many slices are asked.
        """
        return self._run(self._protocol.add(item, within))

    def add_many(self, items: Iterable[Item], within: int | None = None) -> list[bool]:
        """``add`` for each item, in order; a repeat inside the call is False the second time."""
        return self._run(self._protocol.add_many(items, within))

    def contains(self, item: Item, within: int | None = None) -> bool:
        """Has the item been seen within the window, or the newest ``within`` slices? Changes nothing."""
        return self._run(self._protocol.contains(item, within))

    def contains_many(self, items: Iterable[Item], within: int | None = None) -> list[bool]:
        """``contains`` for each item, in order."""
        return self._run(self._protocol.contains_many(items, within))

    def __contains__(self, item: Item) -> bool:
        return self.contains(item)

    def keys(self, at: datetime | None = None) -> list[str]:
        """The Redis keys of the slices that are live now, or ``at`` another time; oldest first."""
        return self._run(self._protocol.keys(at))

    def info(self) -> FilterInfo:
        """What the filter holds, slice by slice. Takes about a millisecond per 4 MB of filter."""
        return self._run(self._protocol.info())

    def clear(self) -> None:
        """Forgets everything, for everybody, also if it is stored with other parameters.

        At once; several shards one after another.
        """
        self._run(self._protocol.clear())

    def reconfigure(self) -> None:
        """Gives a stored filter this object's parameters, and keeps what it has seen.

        Capacity, error rate, hashes, bits, ``slices`` and ``grow`` may change so. Clients that still
        have the old parameters get ConfigMismatch from then on. Raises ConfigMismatch where
        granularity, time zone or shards differ: items are found by these.
        """
        self._run(self._protocol.reconfigure())

    def close(self) -> None:
        """Closes the client, if ``from_url`` made it."""
        if self._owned:
            self.client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, flow: Flow[T]) -> T:
        try:
            calls = next(flow)
            while True:
                calls = flow.send(self._send(calls))
        except StopIteration as stop:
            answer: T = stop.value
            return answer
        finally:
            flow.close()  # tells it of an error or a cancellation here

    def _send(self, calls: Sequence[Call]) -> Sequence[Any]:
        trip = Trip(calls, self._patience)
        while trip.pending:
            if trip.pause:
                sleep(trip.pause)
            trip.take(self._exchange(trip.pending))
        return trip.replies

    def _exchange(self, calls: Sequence[Call]) -> Sequence[Any]:
        """Sends the calls once; the reply, or redis-py's error, to each."""
        try:
            if len(calls) == 1:
                return [self.client.execute_command(*calls[0].words)]  # type: ignore[no-untyped-call]
            with self.client.pipeline(transaction=False) as pipeline:
                for call in calls:
                    pipeline.execute_command(*call.words, **self._target(call))
                replies: Sequence[Any] = pipeline.execute(raise_on_error=False)
                return replies
        except Exception as error:  # noqa: BLE001 - Trip raises those that are not for it
            return [error] * len(calls)

    def _target(self, call: Call) -> dict[str, Any]:
        """The call's node in a cluster, for which redis-py's pipeline would ask another node, one trip a call."""
        if isinstance(self.client, redis.RedisCluster) and isinstance(call, ScriptCall):
            return {"target_nodes": self.client.get_node_from_key(call.keys[0])}  # type: ignore[no-untyped-call]
        return {}

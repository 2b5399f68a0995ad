"""What all classes share that call a server: their client, and how they behave while it does not answer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, Generic, TypeVar

from tbloom.engine.flow import Call, Flow
from tbloom.engine.outage import CircuitBreaker, Guessed
from tbloom.engine.retries import Trip, is_outage
from tbloom.errors import ConfigError
from tbloom.items import Item

Client = TypeVar("Client")
T = TypeVar("T")

#: So long (s) a call is sent again to a single server; a restart may take that.
RETRY_FOR = 5.0
#: The same for a cluster, or through a Sentinel. A failover takes some seconds more than their time-outs
#: (cluster-node-timeout, down-after-milliseconds): 15 and 30 s as they come.
RETRY_FOR_FAILOVER = 40.0
_MAX_RETRY_FOR = 3600.0


def seconds(argument: str, value: Any, least: float, most: float) -> float:
    """The value, if it is a number of seconds in this range."""
    if isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most:
        return float(value)
    raise ConfigError(argument, value, f"a number of seconds from {least:g} to {most:g}")


class Caller(Generic[Client]):
    """A client, and what is done while its server does not answer; the drivers send the calls."""

    #: The redis-py classes that the subclass works with, and the class for the others.
    _CLIENTS: tuple[type, ...]
    _OTHER: str

    def __init__(
        self, client: Client, name: str, *, retry_for: float | None, on_error: str
    ) -> None:
        if not isinstance(client, self._CLIENTS):
            expected = f"a redis-py client for {type(self).__name__}: " + " or ".join(
                f"{cls.__module__.split('.client')[0].split('.cluster')[0]}.{cls.__name__}"
                for cls in self._CLIENTS
            )
            raise ConfigError("client", client, f"{expected} (else see {self._OTHER})")
        #: The redis-py client.
        self.client: Client = client
        self._owned = False
        self._is_cluster = False
        # A call that redis-py resends goes to the address that the first one had: Sentinel is not asked.
        fails_over = hasattr(getattr(client, "connection_pool", None), "sentinel_manager")
        self._retry_for = RETRY_FOR_FAILOVER if fails_over else 0.0
        self._retry_for_is_given = retry_for is not None
        if retry_for is not None:
            self._retry_for = seconds("retry_for", retry_for, 0, _MAX_RETRY_FOR)
        #: What happens while the server does not answer.
        self.circuit = CircuitBreaker(name, on_error)

    def _own_client(self) -> None:
        """The client was made by ``from_url``."""
        self._owned = True
        if not self._retry_for_is_given and not self._retry_for:
            self._retry_for = RETRY_FOR

    def _spread(self, masters: int) -> None:  # noqa: ARG002 - subclasses may have use for it
        """The client is that of a cluster with so many masters."""
        self._is_cluster = True
        if not self._retry_for_is_given:
            self._retry_for = RETRY_FOR_FAILOVER

    def _is_lost(self, error: Exception, *, asked: bool) -> bool:
        """Whether a call's error says that the server is lost for now; the circuit is told."""
        if is_outage(error):
            self.circuit.failed(error)
            return True
        if asked:
            self.circuit.worked()
        return False

    def _told_by_guess(self, flow: Flow[Any]) -> None:
        """Lets the flow know that its caller was told something, before it is closed."""
        self.circuit.answers += 1
        if self.circuit.on_error == "schedule":
            with suppress(Guessed, StopIteration):
                flow.throw(Guessed())

    def _guess(self, *, schedule: T, drop: T) -> tuple[T, ...]:
        """What is answered while the server does not; nothing where its error comes through."""
        return {"schedule": (schedule,), "drop": (drop,)}.get(self.circuit.on_error, ())

    def _guess_many(
        self, items: Iterable[Item], *, schedule: T, drop: T
    ) -> tuple[Iterable[Item], tuple[list[T], ...]]:
        """The same for many items, which may come from an iterator."""
        guess = self._guess(schedule=schedule, drop=drop)
        if not guess or isinstance(items, str | bytes) or not isinstance(items, Iterable):
            return items, ()  # the protocol knows what is wrong with them
        items = list(items)
        return items, (list(guess) * len(items),)

    def _trip(self, calls: Sequence[Call], began: float) -> Trip:
        """A server that is lost is only knocked at."""
        retry_for = 0.0 if self.circuit.is_open else self._retry_for
        return Trip(calls, retry_for, began, is_cluster=self._is_cluster)

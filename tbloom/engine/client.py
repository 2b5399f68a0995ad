"""The base class of all stores. It has the redis-py client, the parameters, and the time for retries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from redis.exceptions import RedisClusterException

from tbloom.engine.flow import Call, Flow
from tbloom.engine.parameters import StoreConfig
from tbloom.engine.retries import Retries, as_redis_error
from tbloom.engine.sending import is_pipeline, node_of
from tbloom.engine.tokens import MAX_RETRY_FOR
from tbloom.engine.urls import ClientOptions, check_options, make_client, parse_url
from tbloom.errors import ConfigError, TBloomError

if TYPE_CHECKING:
    from collections.abc import Mapping

T = TypeVar("T")
Client = TypeVar("Client")
Config = TypeVar("Config", bound=StoreConfig)

#: How long (s) after it was first sent a call is retried on a single server: long enough for a restart.
RETRY_FOR = 5.0
#: How long (s) a call is retried on a cluster, or through a Sentinel. A failover takes some seconds longer than the server's
#: time-out (by default, cluster-node-timeout is 15 s, and down-after-milliseconds is 30 s).
RETRY_FOR_FAILOVER = 40.0


def seconds(argument: str, value: Any, least: float, most: float) -> float:
    """Return the value. Raise ConfigError for ``argument`` unless it is a number of seconds in this range."""
    if isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most:
        return float(value)
    raise ConfigError(argument, value, f"a number of seconds from {least:g} to {most:g}")


class Store(Generic[Client, Config]):
    """A store: a client and parameters. The drivers (``sync``, ``aio``) send its calls."""

    #: redis-py's client classes for a single server and for a cluster.
    _CLIENTS: tuple[Any, Any]
    #: redis-py's class for retries.
    _RETRY: type
    #: The name of the class for the other kind of client.
    _OTHER: str
    #: The store's parameters, and what is derived from them.
    config: Config
    #: True if the next call must read the stored number of shards first.
    _shards_unknown: bool = False
    #: True: the store is closed, and runs no more flows.
    _is_closed: bool = False
    #: Run a flow, and return its result or an awaitable of it. Each driver defines it.
    run: Callable[..., Any]
    #: What sends its calls. Each driver has one.
    _sender: Any

    def __init__(self, client: Client, *, retry_for: float | None) -> None:
        has_cache = getattr(client, "get_cache", lambda: None)() is not None
        if not isinstance(client, self._CLIENTS) or is_pipeline(client) or has_cache:
            name = type(self).__name__
            expected = f"a client of redis-py for {name} without a cache, no pipeline (else see {self._OTHER})"
            raise ConfigError("client", type(client), expected)
        #: The client of redis-py.
        self.client: Client = client
        self._owned = False
        pool: Any = getattr(client, "connection_pool", None)
        self._retry_for = RETRY_FOR_FAILOVER if hasattr(pool, "sentinel_manager") else 0.0
        self._retry_for_is_given = retry_for is not None
        if retry_for is not None:
            self._retry_for = seconds("retry_for", retry_for, 0, MAX_RETRY_FOR)

    @property
    def name(self) -> str:
        """The store's name."""
        return self.config.name

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.config!r}>"

    @classmethod
    def _for_client_or_url(
        cls, client: Any, name: str, options: ClientOptions, arguments: Mapping[str, Any]
    ) -> Self:
        """Return a store, whose parameters are to be loaded, with this client, or one of its own if it is a URL."""
        if isinstance(client, str):
            store = cls._from_url(client, name, options, arguments)
        elif given := check_options(options):
            expected = "no options, because the client has its own"
            raise ConfigError("client_options", [*given], expected)
        else:
            store = cls(client, name, **arguments)  # type: ignore[call-arg,arg-type] # its own ones
        store._shards_unknown = False
        return store

    @classmethod
    def _from_url(
        cls, url: str, name: str, options: ClientOptions, arguments: Mapping[str, Any]
    ) -> Self:
        """Return a store that makes its own client for the URL."""
        address, is_cluster = parse_url(url)
        try:
            client = make_client(cls._CLIENTS[is_cluster].from_url, cls._RETRY, address, options)
        except RedisClusterException as error:  # redis.RedisCluster connects at once
            raise as_redis_error(error) from error
        store = cls(client, name, **arguments)  # type: ignore[call-arg,arg-type] # its own ones
        store._own_client()
        return store

    def _with_stored_shards(self, flow: Flow[T]) -> Flow[T]:
        """Take the stored number of shards, then run the flow and return its result."""
        raise NotImplementedError

    def _set_up_driver(self) -> None:
        """Set up the driver, once the store has its parameters."""

    def _to_run(self, flow: Flow[T]) -> Flow[T]:
        """Return the flow to run in place of this one. Raise TBloomError after ``close()``."""
        if self._is_closed:
            raise TBloomError(f"{self.name!r} is closed; make another {type(self).__name__}")
        return self._with_stored_shards(flow) if self._shards_unknown else flow

    def _own_client(self) -> None:
        """Note that ``from_url`` made the client, so that nothing else uses it."""
        self._owned = True
        if not self._retry_for_is_given and not self._retry_for:
            self._retry_for = RETRY_FOR

    def _on_cluster(self, masters: int) -> None:  # noqa: ARG002 - a subclass uses it
        """Set the defaults for a cluster with this number of masters."""
        if not self._retry_for_is_given:
            self._retry_for = RETRY_FOR_FAILOVER

    def retry_seconds(self) -> float:
        """Return how long (s) after it was first sent a failed call is retried.

        ``Retries`` calls it after each try, because ``close()`` stops retries.
        """
        return self._retry_for

    def _left(self, since: float) -> float:
        """Return how long (s) a call may go on waiting for its turn, in which it has waited since then (monotonic).

        That is as long as other calls are answered. From the last answer on, it is ``retry_for``, or one time-out if that is longer.
        """
        silent_since: float = max(since, self._sender.answered)
        most: float = max(self._retry_for, self._sender.time_out)
        return silent_since + most - monotonic()

    def _retries(self, calls: Sequence[Call], began: float, since: float) -> Retries:
        """Return the retries of calls that were first sent at a time, and had waited for their turn since another one."""
        # A wait for calls that were answered does not count.
        since = since if self._sender.answered < since else began
        return Retries(
            calls, since, self.retry_seconds, partial(node_of, self.client), waited=began - since
        )

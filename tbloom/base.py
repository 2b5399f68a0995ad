"""What the sync and the async class share: construction, and how a client behaves."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from redis.backoff import NoBackoff

from tbloom.calls import Call, Flow
from tbloom.circuit import Circuit, Guessed
from tbloom.config import Config, Parameters, configure
from tbloom.errors import ConfigError
from tbloom.failures import Trip, is_outage
from tbloom.hashing import Item
from tbloom.homememory import HomeMemory
from tbloom.protocol import Protocol
from tbloom.sizing import shards_for

if TYPE_CHECKING:
    from typing_extensions import Unpack

Client = TypeVar("Client")
T = TypeVar("T")

#: So long (s) a call is sent again to a single server; a restart may take that.
PATIENCE = 5.0
#: The same for a cluster, or through a Sentinel. A failover takes some seconds more than their time-outs
#: (cluster-node-timeout, down-after-milliseconds): 15 and 30 s as they come.
PATIENCE_FOR_FAILOVER = 40.0
#: So long (s) our clients wait for a reply, or for a connection: no call holds the server nearly as long.
SOCKET_TIMEOUT = 2.0
#: For so long (s) a session counts as alive without another sign of life.
SESSION_TTL = 60.0
_MOST_PATIENCE, _LONGEST_SESSION = 3600.0, 86400.0
#: What is remembered at home is forgotten after so many seconds.
HOME_AGE = 60.0
_LARGEST_HOME = 100_000_000


class Arguments(Parameters, total=False):
    """What a class may be given beside the client and the name: some are the client's own affair."""

    patience: float | None
    on_error: str
    session_ttl: float
    home_size: int
    home_age: float


def _seconds(argument: str, value: Any, least: float, most: float) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most:
        return float(value)
    raise ConfigError(argument, value, f"a number of seconds from {least:g} to {most:g}")


class Base(Generic[Client]):
    """A filter, its client and its protocol."""

    #: The redis-py classes that the subclass works with, and the class for the others.
    _CLIENTS: tuple[type, ...]
    _OTHER: str

    def __init__(
        self,
        client: Client,
        name: str,
        *,
        patience: float | None = None,
        on_error: str = "raise",
        session_ttl: float = SESSION_TTL,
        home_size: int = 0,
        home_age: float = HOME_AGE,
        **parameters: Unpack[Parameters],
    ) -> None:
        """A filter that remembers items for the newest ``slices`` periods of ``granularity``.

        :param client: a redis-py client; it stays the caller's to close.
        :param name: the filter's name: all who give the same name share it.
        :param granularity: ``"h"``, ``"d"`` (the default), ``"w"`` (ISO week) or ``"m"`` in the time
            zone ``tz``; or a fixed length counted from the epoch, such as ``"15min"`` or a
            ``timedelta``.
        :param slices: how many periods, the current one included (7). An item is remembered for at
            least ``slices - 1`` of them, at most ``slices``.
        :param capacity: distinct items expected per slice. None, the default: 1,000,000, or what
            ``bits`` and ``hashes`` hold at ``error_rate``.
        :param error_rate: the chance that an item never added is called seen, over the whole window
            (1e-4).
        :param tz: an IANA time zone (UTC).
        :param shards: independent parts of the filter; on a cluster they spread over its nodes. None,
            the default: those of the stored filter, or as few as keep each key at 32 MB or less, in
            a multiple of the cluster's masters.
        :param grow: what happens when a slice holds its capacity: True, the default: it gets further
            parts, and the error rate is kept; False: ``FilterFull`` is raised.
        :param bits: size of a slice, in place of the one that ``capacity`` leads to; needs ``hashes``.
        :param hashes: bits per item.
        :param patience: for how long (seconds) a call that fails is sent again, before its error comes
            through or ``on_error`` decides. None, the default: 5 with a client that ``from_url`` made,
            40 on a cluster or through a Sentinel, else 0, which leaves it to the client.
        :param on_error: what is done then: ``"raise"``, the default; ``"schedule"``: items are taken
            for new; ``"drop"``: for seen. The server is asked again every 10 seconds.
        :param session_ttl: for how long (seconds) a process that claims items counts as alive without
            a sign of life (60).
        :param home_size: how many items that are seen are remembered in this process, so that Redis is
            not asked for them again (0); about 100 bytes each.
        :param home_age: for how long (seconds) at most (60): so late a ``clear()`` by another client may
            be noticed.
        :raises ConfigError: where an argument can't be right.
        """
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
        self._patience = PATIENCE_FOR_FAILOVER if fails_over else 0.0
        self._has_own_patience = patience is not None
        if patience is not None:
            self._patience = _seconds("patience", patience, 0, _MOST_PATIENCE)
        #: For how long (s) a session counts as alive without a sign of life.
        self.session_ttl = _seconds("session_ttl", session_ttl, 1, _LONGEST_SESSION)
        self._adopts_shards = parameters.get("shards") is None
        config = configure(name, **parameters)
        #: What happens while the server does not answer.
        self.circuit = Circuit(name, on_error)
        if type(home_size) is not int or not 0 <= home_size <= _LARGEST_HOME:
            raise ConfigError("home_size", home_size, f"a whole number from 0 to {_LARGEST_HOME}")
        home = HomeMemory(home_size, _seconds("home_age", home_age, 0, _LONGEST_SESSION))
        self._protocol = Protocol(config, self.session_ttl, home, adopts_shards=self._adopts_shards)

    @property
    def home_hits(self) -> int:
        """How many answers came from the memory at home."""
        return self._protocol.home.hits

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

    @property
    def session(self) -> str:
        """The name under which this process claims items."""
        return self._protocol.claims.mine.session

    def hand_over(self, items: Iterable[Item]) -> None:
        """Another process goes on with these: it claims them with this session as ``giver``. The
        session keeps the claims alive, and answers "busy" for them no more by itself."""
        self._protocol.hand_over(items)

    def _own_client(self) -> None:
        """The client was made by ``from_url``."""
        self._owned = True
        if not self._has_own_patience and not self._patience:
            self._patience = PATIENCE

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
        patience = 0.0 if self.circuit.is_open else self._patience
        return Trip(calls, patience, began, is_cluster=self._is_cluster)

    def _beat_seconds(self) -> float:
        """How often a session gives a sign of life: a few may get lost."""
        return self.session_ttl / 4

    def _spread(self, masters: int) -> None:
        """On a cluster of so many masters, chooses a number of shards that spreads evenly."""
        self._is_cluster = True
        if not self._has_own_patience:
            self._patience = PATIENCE_FOR_FAILOVER
        shards = shards_for(self.config.bits, masters)
        if self._adopts_shards and shards != self.config.shards:
            self._protocol.use_shards(shards)

    @property
    def name(self) -> str:
        """The filter's name."""
        return self._protocol.config.name

    @property
    def config(self) -> Config:
        """The filter's parameters, the derived ones too."""
        return self._protocol.config

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.config!r}>"


def without_secrets(url: str) -> str:
    """The URL as a log may have it: its query may have a password too, and a password a question mark."""
    shown, _, query = url.partition("?")
    if "@" in query:
        return shown.partition("//")[0] + "//***"
    return re.sub(r"//.*@", "//***@", shown, flags=re.DOTALL)


def make_client(from_url: Callable[..., Any], retry: Callable[..., Any], url: str) -> Any:
    """redis-py's client for the URL; raises ConfigError where redis-py can't read it."""
    try:
        client = from_url(
            url,
            retry=retry(NoBackoff(), 0),  # sending again is ours to do: we know for how long
            socket_timeout=SOCKET_TIMEOUT,
            socket_connect_timeout=SOCKET_TIMEOUT,
        )
        pool = getattr(client, "connection_pool", None)
        if pool is not None:  # else a cluster's, which has used all options by now
            pool.connection_class(**pool.connection_kwargs)
    except (ValueError, TypeError) as error:
        why = "" if "@" in url else f" ({error})"  # it may have a piece of the password
        raise ConfigError("url", without_secrets(url), f"what redis-py takes{why}") from None
    return client


def parse_url(url: Any) -> tuple[str, bool]:
    """A URL that redis-py can read, and whether it is a cluster's; raises ConfigError."""
    match = (
        re.fullmatch(r"(rediss?|unix)(\+cluster)?(://.*)", url) if isinstance(url, str) else None
    )
    own_path = r"://[^/?#]*/?\d*([?#].*)?"
    if match and match[1] != "unix" and not re.fullmatch(own_path, match[3], re.DOTALL):
        # redis-py would take database 0.
        raise ConfigError("url", without_secrets(url), "the number of a database after the last /")
    if not match:
        expected = "a URL that starts with redis://, rediss://, redis+cluster://, rediss+cluster:// or unix://"
        shown = without_secrets(url) if isinstance(url, str) else url
        raise ConfigError("url", shown, expected)
    return match[1] + match[3], bool(match[2])

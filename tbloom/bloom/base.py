"""What the sync and the async class share: construction, and their parameters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tbloom.bloom.cache import LocalCache
from tbloom.bloom.config import Config, Parameters, configure
from tbloom.bloom.protocol import Protocol
from tbloom.bloom.sizing import shards_for
from tbloom.engine.client import Caller, Client, seconds
from tbloom.errors import ConfigError
from tbloom.items import Item

if TYPE_CHECKING:
    from typing_extensions import Unpack

#: For so long (s) a session counts as alive without another sign of life.
SESSION_TTL = 60.0
_LONGEST_SESSION = 86400.0
#: What is remembered at home is forgotten after so many seconds.
CACHE_TTL = 60.0
_MAX_CACHE_SIZE = 100_000_000


class Arguments(Parameters, total=False):
    """What a class may be given beside the client and the name: some are the client's own affair."""

    retry_for: float | None
    on_error: str
    session_ttl: float
    cache_size: int
    cache_ttl: float


class Base(Caller[Client]):
    """A filter, its client and its protocol."""

    def __init__(
        self,
        client: Client,
        name: str,
        *,
        retry_for: float | None = None,
        on_error: str = "raise",
        session_ttl: float = SESSION_TTL,
        cache_size: int = 0,
        cache_ttl: float = CACHE_TTL,
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
        :param retry_for: for how long (seconds) a call that fails is sent again, before its error comes
            through or ``on_error`` decides. None, the default: 5 with a client that ``from_url`` made,
            40 on a cluster or through a Sentinel, else 0, which leaves it to the client.
        :param on_error: what is done then: ``"raise"``, the default; ``"schedule"``: items are taken
            for new; ``"drop"``: for seen. The server is asked again every 10 seconds.
        :param session_ttl: for how long (seconds) a process that claims items counts as alive without
            a sign of life (60).
        :param cache_size: how many items that are seen are remembered in this process, so that Redis is
            not asked for them again (0); about 100 bytes each.
        :param cache_ttl: for how long (seconds) at most (60): so late a ``clear()`` by another client may
            be noticed.
        :raises ConfigError: where an argument can't be right.
        """
        super().__init__(client, name, retry_for=retry_for, on_error=on_error)
        #: For how long (s) a session counts as alive without a sign of life.
        self.session_ttl = seconds("session_ttl", session_ttl, 1, _LONGEST_SESSION)
        self._adopts_shards = parameters.get("shards") is None
        config = configure(name, **parameters)
        if type(cache_size) is not int or not 0 <= cache_size <= _MAX_CACHE_SIZE:
            raise ConfigError(
                "cache_size", cache_size, f"a whole number from 0 to {_MAX_CACHE_SIZE}"
            )
        cache = LocalCache(cache_size, seconds("cache_ttl", cache_ttl, 0, _LONGEST_SESSION))
        self._protocol = Protocol(
            config, self.session_ttl, cache, adopts_shards=self._adopts_shards
        )

    @property
    def cache_hits(self) -> int:
        """How many answers came from the memory at home."""
        return self._protocol.cache.hits

    @property
    def session(self) -> str:
        """The name under which this process claims items."""
        return self._protocol.claims.own.session

    def hand_over(self, items: Iterable[Item]) -> None:
        """Another process goes on with these: it claims them with this session as ``previous_owner``. The
        session keeps the claims alive, and answers "busy" for them no more by itself."""
        self._protocol.hand_over(items)

    def _beat_seconds(self) -> float:
        """How often a session gives a sign of life: a few may get lost."""
        return self.session_ttl / 4

    def _spread(self, masters: int) -> None:
        """On a cluster of so many masters, chooses a number of shards that spreads evenly."""
        super()._spread(masters)
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

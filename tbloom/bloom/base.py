"""The base of ``TimeBloom`` and ``AsyncTimeBloom``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tbloom.bloom.cache import LocalCache
from tbloom.bloom.config import Config, Parameters, configure
from tbloom.bloom.protocol import Protocol
from tbloom.bloom.sizing import shards_for
from tbloom.engine.client import Client, Store, seconds
from tbloom.engine.parameters import refuse_old_names
from tbloom.errors import ConfigError
from tbloom.items import Item

if TYPE_CHECKING:
    from typing_extensions import Unpack

#: How long (s) a session counts as alive after its last heartbeat.
SESSION_TTL = 60.0
_LONGEST_SESSION = 86400.0
#: Default lifetime of the local cache, in seconds.
CACHE_TTL = 60.0
_MAX_CACHE_SIZE = 100_000_000


class Arguments(Parameters, total=False):
    """The optional arguments of both classes; those below are not stored, and clients may differ in them."""

    retry_for: float | None
    session_ttl: float
    cache_size: int
    cache_ttl: float


class Base(Store[Client, Config]):
    """A filter, its client and its protocol."""

    _protocol: Protocol

    def __init__(
        self,
        client: Client,
        name: str,
        *,
        retry_for: float | None = None,
        session_ttl: float = SESSION_TTL,
        cache_size: int = 0,
        cache_ttl: float = CACHE_TTL,
        **parameters: Unpack[Parameters],
    ) -> None:
        """A filter that remembers items for the newest ``slices`` periods of ``granularity``.

        :param client: a redis-py client, of ``redis.asyncio`` for ``AsyncTimeBloom``; it stays yours to close.
        :param name: the filter's name; clients with the same name share the filter. ``{blocked}:new`` has the hash
            tags of ``blocked``, whose place it can take (``swap``).
        :param granularity: ``"h"``, ``"d"`` (the default), ``"w"`` (ISO week) or ``"m"`` in the time
            zone ``tz``; or a fixed length counted from the epoch, such as ``"15min"`` or a
            ``timedelta``. None: the filter has no window, and never forgets: it has one slice, whose keys
            have no TTL.
        :param slices: the number of periods, the current one included (7); none without a window. An item is remembered for at
            least ``slices - 1`` of them, at most ``slices``.
        :param capacity: distinct items expected per slice. None, the default: 1,000,000, or what
            ``bits`` and ``hashes`` hold at ``error_rate``, which is then the most that can be given.
        :param error_rate: the chance that an item never added is called seen, over the whole window.
            None, the default: 1e-4, or what follows from ``capacity``, ``bits`` and ``hashes`` where all are given.
        :param tz: an IANA time zone (UTC).
        :param shards: independent parts of the filter; on a cluster they spread over its nodes. None,
            the default: those of the stored filter, or as few as keep each key at 32 MB or less, in
            a multiple of the cluster's masters.
        :param grow: what happens when a slice holds its capacity: True, the default: it gets further
            parts, and the error rate is kept; False: ``FilterFull`` is raised.
        :param bits: size of a slice, in place of the one that ``capacity`` leads to; needs ``hashes``.
        :param hashes: bits per item.
        :param retry_for: how long (seconds) a failed call is retried, before its error is raised. None, the
            default: 5 with a client that ``from_url`` made, 40 on a cluster or through a Sentinel, else 0,
            which leaves retries to the client.
        :param session_ttl: how long (seconds) a process that claims items counts as alive after its last
            heartbeat (60).
        :param cache_size: the number of seen items that this process remembers, without another request
            for them (0); about 100 bytes each.
        :param cache_ttl: how long (seconds) it remembers them (60); it notices another client's ``clear()`` or ``swap()``
            after this time at the latest.
        :raises ConfigError: if an argument can't be right.
        """
        refuse_old_names(parameters, Parameters.__annotations__)
        super().__init__(client, retry_for=retry_for)
        #: How long (s) a session counts as alive after its last heartbeat.
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
        self._begin()

    @property
    def cache_hits(self) -> int:
        """The number of answers from the local cache."""
        return self._protocol.cache.hits

    @property
    def session(self) -> str:
        """The name under which this process claims items."""
        return self._protocol.claims.own.session

    def assume_new(self, items: Iterable[Item]) -> None:
        """Takes the items for new, after a call with them has raised one of redis-py's errors: drops its lost
        answers, which the next call would get, and holds the claims that may have reached the server."""
        self._protocol.assume_new(items)

    def hand_over(self, items: Iterable[Item]) -> None:
        """Hands claimed items over to another process, which claims them with this session as
        ``previous_owner``. Until then this session keeps the claims alive, and asks Redis about them."""
        self._protocol.hand_over(items)

    def _beat_seconds(self) -> float:
        """The time between two heartbeats (s); three may get lost."""
        return self.session_ttl / 4

    def _spread(self, masters: int) -> None:
        """Chooses a number of shards that spreads evenly over the cluster's masters."""
        super()._spread(masters)
        shards = shards_for(self.config.bits, masters)
        if self._adopts_shards and shards != self.config.shards:
            self._protocol.use_shards(shards)

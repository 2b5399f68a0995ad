"""The common base of ``TimeBloom`` and ``AsyncTimeBloom``: construction, parameters, and the local cache."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import ParamSpec, Self, TypedDict, TypeVar, Unpack

from tbloom.arguments import takes
from tbloom.bloom.batch import NO_LOOKS, FilterBatch
from tbloom.bloom.cache import LocalCache
from tbloom.bloom.config import Config, Parameters, configure, from_stored
from tbloom.bloom.dispatcher import FilterDispatcher
from tbloom.bloom.hasher import Secret
from tbloom.bloom.view import View
from tbloom.engine.batches import Knowledge
from tbloom.engine.client import Client, Store, seconds
from tbloom.engine.flow import Call, Flow, give_up, request, text
from tbloom.engine.methods import verb
from tbloom.engine.parameters import mismatch
from tbloom.engine.urls import ClientOptions
from tbloom.errors import ConfigError

P = ParamSpec("P")
T = TypeVar("T")

#: How long (s) a session counts as alive after its last heartbeat.
SESSION_TTL = 60.0
_LONGEST_SESSION = 86400.0
#: Default lifetime of the local cache, in seconds.
CACHE_TTL = 60.0
_MAX_CACHE_SIZE = 100_000_000


class ClientSettings(TypedDict, total=False):
    """The optional arguments of both classes that are not stored. Clients may use different values."""

    prefix: str
    retry_for: float | None
    session_ttl: float
    cache_size: int
    cache_ttl: float


class Arguments(Parameters, ClientSettings, total=False):
    """The optional arguments of both classes."""


class Base(Store[Client, Config]):
    """One client of a filter."""

    config: Config

    @takes(Arguments, "client", "name")
    def __init__(
        self,
        client: Client,
        name: str,
        *,
        prefix: str = "",
        retry_for: float | None = None,
        session_ttl: float = SESSION_TTL,
        cache_size: int = 0,
        cache_ttl: float = CACHE_TTL,
        **parameters: Unpack[Parameters],
    ) -> None:
        """Make a filter that remembers items for the newest ``slices`` periods of ``granularity``.

        :param client: a client of redis-py, of its ``asyncio`` for ``AsyncTimeBloom``; it stays yours to close.
        :param name: the filter's name; clients with the same name share the filter.
        :param granularity: ``"h"``, ``"d"`` (the default), ``"w"`` (ISO week) or ``"m"`` in the time
            zone ``tz``; or a fixed length counted from the epoch, such as ``"15min"`` or a
            ``timedelta``. None: the filter has no window, and never forgets: it has one slice, whose keys
            have no TTL.
        :param slices: the number of periods, the current one included (7); none without a window. An item is remembered for at
            least ``slices - 1`` of them, at most ``slices``.
        :param capacity: distinct items expected per slice. None, the default: as many as the last slice held, and 10,000 in
            the first one; or with ``bits`` and ``hashes``, what they hold at ``error_rate``.
        :param error_rate: the chance that an item never added is called seen, over the whole window.
            None, the default: 1e-4.
        :param tz: an IANA time zone (UTC).
        :param shards: independent parts of the filter; on a cluster they spread over its nodes. None, the default: those of
            the stored filter; else the fewest that keep each key at 8 MiB or less, in a multiple of the cluster's masters.
        :param grow: whether a full slice grows, and keeps the error rate (True), or raises ``FilterFull``.
        :param bits: size of a slice, instead of the size that follows from ``capacity``; needs ``hashes``.
        :param hashes: bits per item; needs ``bits``.
        :param secret: 16 to 64 random bytes, the same for all clients. Without them, anybody can make an item that the filter
            mistakes for a chosen other item.
        :param prefix: the text with which each key begins, such as ``"app1:"`` (none).
        :param retry_for: how long (seconds) after it was first sent a failed call is retried, before its error is raised. None, the
            default: 5 with a client that ``from_url`` made; 40 on a cluster or through a Sentinel; 0 with any other client of yours.
        :param session_ttl: how long (seconds) a process that claims items counts as alive after its last
            heartbeat (60).
        :param cache_size: the number of seen items that this process remembers, so that it need not ask the
            server again (0); about 100 bytes each.
        :param cache_ttl: how long (seconds) it remembers them (60), and may not notice another client's ``clear()``.
        :raises ConfigError: if an argument can't be right.
        """
        super().__init__(client, retry_for=retry_for)
        #: How long (s) a session counts as alive after its last heartbeat.
        self.session_ttl: float = seconds("session_ttl", session_ttl, 1, _LONGEST_SESSION)
        #: Without a number of shards, the stored filter's number is read before the first call.
        self._shards_unknown = parameters.get("shards") is None
        self.config = configure(name, prefix=prefix, **parameters)
        if type(cache_size) is not int or not 0 <= cache_size <= _MAX_CACHE_SIZE:
            raise ConfigError(
                "cache_size", cache_size, f"a whole number from 0 to {_MAX_CACHE_SIZE}"
            )
        self._cache = LocalCache(cache_size, seconds("cache_ttl", cache_ttl, 0, _LONGEST_SESSION))
        self._dispatcher = FilterDispatcher(self.config)
        self._set_up_driver()

    @classmethod
    def from_url(
        cls,
        url: str,
        name: str,
        *,
        client_options: ClientOptions = None,
        **arguments: Unpack[Arguments],
    ) -> Self:
        """Make a filter with a client of its own, closed with the filter; ``arguments`` as for the class.

        ``client_options`` are redis-py's options for the client, such as ``{"socket_timeout": 5}``. Options in the URL take
        precedence.

        ``url`` is redis-py's; ``redis+cluster://host:port`` reaches a cluster by one of its nodes. ``valkey`` in place of
        ``redis`` is the same.
        The client waits 2 seconds for a reply, unless the URL has another ``socket_timeout``. If the
        connection fails, the call is sent again for 5 seconds (``retry_for``), and gets the first
        answer.
        """
        return cls._from_url(url, name, client_options, arguments)

    @property
    def cache_hits(self) -> int:
        """The number of answers from the local cache."""
        return self._cache.hits

    @verb
    def _load_parameters(self, secret: bytes | None) -> Flow[None]:
        """Load the stored parameters, for ``open``."""
        [stored] = yield from request([Call(("GET", self.config.keys.root))])
        if stored is None:
            expected = f"the name of a stored filter ({type(self).__name__}() makes one)"
            raise ConfigError("name", self.name, expected)
        config = from_stored(self.name, text(stored), prefix=self.config.prefix)
        if secret is not None:
            given = replace(config, secret=Secret(secret))
            if given.stored != config.stored:
                raise mismatch(given, stored)
            config = given
        self._use(config)

    def _on_cluster(self, masters: int) -> None:
        """Choose a number of shards that spreads evenly over the cluster's masters."""
        super()._on_cluster(masters)
        if self._shards_unknown:
            self._use_shards(self.config.shards_over(masters))

    def _use_shards(self, shards: int) -> None:
        """Switch to another number of shards, before anything is claimed."""
        if shards != self.config.shards:
            self._use(replace(self.config, shards=shards))

    def _use(self, config: Config) -> None:
        """Switch to other parameters, before anything is claimed."""
        self.config = config
        self._dispatcher = FilterDispatcher(self.config)

    def _with_stored_shards(self, flow: Flow[T]) -> Flow[T]:
        """Take the stored number of shards, then run the flow and return its result."""
        try:
            [stored] = yield from request([Call(("GET", self.config.keys.root))])
        except BaseException:  # GeneratorExit too, after an error of the driver
            give_up(flow)
            raise
        if stored is not None:
            self._shards_unknown = False
            differences = self.config.differences(text(stored))
            # If this number is not valid for this filter, the flow below raises ConfigMismatch.
            with suppress(ConfigError):
                self._use_shards(differences.get("shards", (self.config.shards,))[0])
        answer = yield from flow
        view = self._dispatcher.view
        if view is not None and view.knowledge is Knowledge.STORED:
            self._shards_unknown = False
        return answer

    def _is_cached(self, key: bytes, within: int) -> bool:
        """Return True if the local cache has the item, and no answer for it is pending."""
        return (
            within == self.config.slices
            and self._cache.holds(key, self._dispatcher.current_view())
            and key not in self._dispatcher.pending_answers
        )

    def _not_cached(
        self, digests: Iterable[bytes], within: int, looks: Mapping[bytes, bytes] = NO_LOOKS
    ) -> list[bytes]:
        """Return the items that are not in the local cache, as what is searched for in their places."""
        return [
            key
            for key in dict.fromkeys(digests)
            if not self._is_cached(looks.get(key, key), within)
        ]

    def _keep_new(self, digest: bytes, batch: FilterBatch | None) -> None:
        """Keep an item whose task was cancelled, if it is new."""
        self._dispatcher.keep_new(digest, batch)

    def _cache_seen(self, seen: Iterable[bytes], view: View | None) -> None:
        # If the view has changed, the answers are for an older slice, or from before a clear(), and must not be cached.
        if self._cache.size and view is self._dispatcher.current_view():
            self._cache.keep(seen, view)

"""The verbs of an exact filter, as flows without I/O (see ``tbloom.engine.methods``)."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from functools import partial
from itertools import chain
from typing import Self, TypedDict, Unpack

from tbloom.arguments import (
    Item,
    check_ttl,
    encode,
    encode_all,
    fingerprint,
    fingerprints_of,
    takes,
)
from tbloom.engine.batcher import SharedCall
from tbloom.engine.batches import seen_again
from tbloom.engine.buckets import bucket_keys
from tbloom.engine.client import Client, Store
from tbloom.engine.directory import Directory, read_directory
from tbloom.engine.flow import Call, Flow, request, request_all, text
from tbloom.engine.methods import removing, verb
from tbloom.engine.parameters import mismatch
from tbloom.engine.pending import Answers, in_order
from tbloom.engine.scripts import Script
from tbloom.engine.server import Told, ask_servers, check_stored, memory_of_buckets
from tbloom.engine.urls import ClientOptions
from tbloom.errors import ConfigError, TBloomError
from tbloom.exact.config import ExactConfig, from_stored
from tbloom.exact.dispatcher import ExactDispatcher
from tbloom.exact.info import ExactInfo
from tbloom.window import from_ms

_COUNT = Script("exact/count")
#: How long an item is remembered by default (s).
DEFAULT_TTL = 3600


class ExactArguments(TypedDict, total=False):
    """The optional arguments of both classes."""

    ttl: float | timedelta
    shards: int
    prefix: str
    retry_for: float | None


class ExactVerbs(Store[Client, ExactConfig]):
    """The common base of ``ExactFilter`` and ``AsyncExactFilter``."""

    config: ExactConfig

    @takes(ExactArguments, "client", "name")
    def __init__(
        self,
        client: Client,
        name: str,
        *,
        ttl: float | timedelta = DEFAULT_TTL,
        shards: int = 1,
        prefix: str = "",
        retry_for: float | None = None,
    ) -> None:
        """Make a filter that lets each item expire separately.

        :param client: a client of redis-py, of its ``asyncio`` for ``AsyncExactFilter``; it stays yours to close.
        :param name: the filter's name; clients with the same name share the filter.
        :param ttl: how long an item is remembered after its first add, in seconds or as a ``timedelta``
            (3600). Clients may use different values.
        :param shards: independent parts of the filter; on a cluster they spread over its nodes (1).
        :param prefix: the text with which each key begins (none); see ``TimeBloom``.
        :param retry_for: how long (seconds) a failed call is retried; None, the default: as in ``TimeBloom``.
        :raises ConfigError: if an argument can't be right.
        """
        super().__init__(client, retry_for=retry_for)
        self.config = ExactConfig(name, shards, prefix)
        self._ttl = check_ttl(ttl)
        self._dispatcher = ExactDispatcher(self.config)
        self._set_up_driver()

    @classmethod
    def from_url(
        cls,
        url: str,
        name: str,
        *,
        client_options: ClientOptions = None,
        **arguments: Unpack[ExactArguments],
    ) -> Self:
        """Make a filter with a client of its own, closed with the filter; see ``TimeBloom.from_url``."""
        return cls._from_url(url, name, client_options, arguments)

    @verb
    def _load_parameters(self) -> Flow[None]:
        """Load the stored parameters, for ``open``."""
        [stored] = yield from request([Call(("GET", self.config.keys.root))])
        if stored is None:
            expected = f"the name of a stored filter ({type(self).__name__}() makes one)"
            raise ConfigError("name", self.name, expected)
        config = from_stored(self.name, text(stored), self.config.prefix)
        if config is None:
            raise mismatch(self.config, stored)
        self.config, self._dispatcher = config, ExactDispatcher(config)

    @verb
    def add(self, item: Item, ttl: float | timedelta | None = None) -> Flow[bool]:
        """Return True and remember the item for ``ttl`` if it is new. Return False if it is remembered already.

        A remembered item keeps its expiry. (If a call is repeated after an error, the first call may have added the
        item, with its own ``ttl``.)

        :param ttl: seconds, or a ``timedelta``; None, the default: the filter's.
        """
        key, ttl_ms = fingerprint(encode(item)), self._ttl_ms(ttl)
        return bool((yield from self._dispatcher.add_items([key], ttl_ms)).get(key))

    @add.shared
    def _shared_add(
        self, item: Item, ttl: float | timedelta | None = None
    ) -> tuple[SharedCall, int]:
        dispatcher, ttl_ms = self._dispatcher, self._ttl_ms(ttl)
        add = partial(dispatcher.add_items, ttl=ttl_ms)
        call = SharedCall(("add", ttl_ms), self.run, add, dispatcher.keep_new, seen_again)
        return call, fingerprint(encode(item))

    @verb
    def add_many(
        self, items: Iterable[Item], ttl: float | timedelta | None = None
    ) -> Flow[list[bool]]:
        """Return the answer of ``add`` for each item, in order; a repeat within the call is False."""
        ttl_ms, digests = self._ttl_ms(ttl), fingerprints_of(items)
        return _in_order(digests, self._dispatcher.add_items(digests, ttl_ms))

    @add_many.adds
    def _keys_of(self, items: Iterable[Item]) -> tuple[list[bytes], list[int]]:
        data = encode_all(items)
        return data, fingerprints_of(data)

    @verb
    def contains(self, item: Item) -> Flow[bool]:
        """Return True if the item is remembered. Nothing is changed."""
        key = fingerprint(encode(item))
        return bool((yield from self._dispatcher.contains([key]))[key])

    @contains.shared
    def _shared_contains(self, item: Item) -> tuple[SharedCall, int]:
        ask = self._dispatcher.contains
        return SharedCall("contains", self.run, ask), fingerprint(encode(item))

    @verb
    def contains_many(self, items: Iterable[Item]) -> Flow[list[bool]]:
        """Return the answer of ``contains`` for each item, in order."""
        return self._contains_each(fingerprints_of(items))

    @removing
    @verb
    def discard(self, item: Item) -> Flow[bool]:
        """Forget the item, for all clients. Return True if it was remembered until now.

        A call that tbloom sends again gets its first answer. A call that you repeat after an error may return False.
        """
        key = fingerprint(encode(item))
        return bool((yield from self._dispatcher.discard([key]))[key])

    @removing
    @verb
    def discard_many(self, items: Iterable[Item]) -> Flow[list[bool]]:
        """Forget the items, and return the answer of ``discard`` for each, in order; a repeat within the call is False."""
        digests = fingerprints_of(items)
        return _in_order(digests, self._dispatcher.discard(digests))

    @verb
    def expires(self, item: Item) -> Flow[datetime | None]:
        """Return when the item will be forgotten (UTC), or None if it is not remembered. Nothing is changed."""
        return (yield from self._expiries([fingerprint(encode(item))]))[0]

    @verb
    def expires_many(self, items: Iterable[Item]) -> Flow[list[datetime | None]]:
        """Return the answer of ``expires`` for each item, in order."""
        return (yield from self._expiries(fingerprints_of(items)))

    @verb
    def info(self) -> Flow[ExactInfo]:
        """Return the contents of the filter. This takes the server some 2 us per bucket; a call reads 100 buckets."""
        config = self.config
        yield from check_stored(config)
        items, dead, buckets = 0, 0, list[str]()
        for shard in range(config.shards):
            directory = yield from read_directory(config.name, config.keys.layout(shard))
            groups = bucket_keys(config.keys.buckets(directory.generation, shard), directory)
            buckets += chain.from_iterable(groups)
            counts = [_COUNT.call(keys, (directory.generation,)) for keys in groups]
            for counted in (yield from request_all(counts)):
                items, dead = items + counted[0], dead + counted[1]
        told = yield from self._told()
        warnings = told.warnings
        return ExactInfo(
            name=config.name,
            shards=config.shards,
            items=items,
            dead=dead,
            buckets=len(buckets),
            bytes=(yield from memory_of_buckets(buckets, warnings)),
            warnings=tuple(warnings),
            unsaved_since=told.unsaved_since,
        )

    @verb
    def warnings(self) -> Flow[list[str]]:
        """Return warnings about dangers to the filter: a server that drops keys when its memory is full."""
        return (yield from self._told()).warnings

    @removing
    @verb
    def clear(self) -> Flow[None]:
        """Forget everything, for all clients, even if the filter is stored with other shards.

        Each shard is cleared in one step, and then its memory is freed. Shards are cleared one after another. After an error,
        call it again.
        """
        root = self.config.keys.root
        [stored] = yield from request([Call(("GET", root))])
        if stored is not None and text(stored) != self.config.stored:
            other = from_stored(self.config.name, text(stored), self.config.prefix)
            if other is None:
                raise mismatch(self.config, stored)
            yield from _clear(ExactDispatcher(other))
        yield from _clear(self._dispatcher)
        yield from request([Call(("UNLINK", self.config.keys.fingerprinter()))])

    def _ttl_ms(self, ttl: float | timedelta | None) -> int:
        return self._ttl if ttl is None else check_ttl(ttl)

    def _told(self) -> Flow[Told]:
        return ask_servers([*map(self.config.keys.config, range(self.config.shards))])

    def _contains_each(self, digests: list[int]) -> Flow[list[bool]]:
        answers = yield from self._dispatcher.contains(digests)
        return [bool(answers[digest]) for digest in digests]

    def _expiries(self, digests: list[int]) -> Flow[list[datetime | None]]:
        found: dict[int, datetime] = {}
        for batch in (yield from self._dispatcher.look_up(digests, "expires")):
            found.update(zip(batch.items_with("1"), map(from_ms, batch.times), strict=True))
        return [found.get(key) for key in digests]


def _in_order(digests: list[int], flow: Flow[Answers]) -> Flow[list[bool]]:
    return in_order((yield from flow), digests)


def _clear(dispatcher: ExactDispatcher) -> Flow[None]:
    config = dispatcher.config
    if config.shards > 1:
        # The root key comes first, so that any client that adds to a cleared shard compares the parameters again.
        yield from request([Call(("UNLINK", config.keys.root))])
    dispatcher.forget()
    for shard in range(config.shards):
        try:
            directory = yield from read_directory(config.name, config.keys.layout(shard))
        except TBloomError:  # the layout is not tbloom's, so it leads to no buckets
            directory = Directory("")
        yield from dispatcher.clear(shard, directory.generation)
        prefix = config.keys.buckets(directory.generation, shard)
        yield from request_all([Call(("UNLINK", *keys)) for keys in bucket_keys(prefix, directory)])

"""The verbs of a filter, as flows without I/O (see ``tbloom.engine.methods``). ``claims/verbs`` has the verbs for claims."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from functools import partial
from typing import Any

from tbloom.arguments import Item, check_at, check_keep, check_within, encode_all
from tbloom.bloom import calls
from tbloom.bloom.base import Base
from tbloom.bloom.config import from_stored
from tbloom.bloom.dispatcher import FilterDispatcher
from tbloom.bloom.hasher import shard_of
from tbloom.bloom.info import FilterInfo, read_info, read_overview
from tbloom.engine.batcher import SharedCall
from tbloom.engine.batches import Knowledge, seen_again, unless_full
from tbloom.engine.client import Client
from tbloom.engine.flow import Call, Flow, request, text
from tbloom.engine.methods import removing, verb
from tbloom.engine.pending import Answers, answers_of, in_order
from tbloom.engine.server import ask_time, check_stored
from tbloom.errors import FilterFull
from tbloom.window import Period, to_ms


class Verbs(Base[Client]):
    """The verbs of a filter."""

    @verb
    def add(self, item: Item, within: int | None = None, keep: int | None = None) -> Flow[bool]:
        """Return True and remember the item if it is new. Return False if it was seen within the window.

        With ``within``, only that number of newest slices is checked. With ``keep``, a new item is remembered for that number
        of slices, the current one included, instead of the whole window: it goes into the slice that leaves the window then,
        and counts there for ``last_seen``, ``info`` and ``within``. An item that is seen keeps its original expiry. An item
        that is claimed, and not yet committed, is new: ``add`` does not see claims.
        """
        key = self.config.digest(item)
        return bool((yield from self._add_digests([key], within, keep)).get(key))

    @add.shared
    def _shared_add(
        self, item: Item, within: int | None = None, keep: int | None = None
    ) -> tuple[SharedCall, bytes]:
        # The arguments are checked before they become part of the kind, because True equals 1.
        how = None if within is None and keep is None else self._checked(within, keep)
        add = partial(self._add_digests, within=within, keep=keep)
        some = partial(self._unless_full, add=add, within=within)
        call = SharedCall(("add", how), self.run, some, self._keep_new, seen_again)
        return call, self.config.digest(item)

    @verb
    def add_many(
        self, items: Iterable[Item], within: int | None = None, keep: int | None = None
    ) -> Flow[list[bool]]:
        """Return the answer of ``add`` for each item, in order; a repeat within the call is False."""
        digests = self.config.digests_of(items)
        return in_order((yield from self._add_digests(digests, within, keep)), digests)

    @add_many.adds
    def _keys_of(self, items: Iterable[Item]) -> tuple[list[bytes], list[bytes]]:
        data = encode_all(items)
        return data, self.config.digests_of(data)

    @verb
    def contains(self, item: Item, within: int | None = None) -> Flow[bool]:
        """Return True if the item was seen within the window, or the newest ``within`` slices. Nothing is changed."""
        key = self.config.digest(item)
        return bool((yield from self._contains_digests([key], within))[key])

    @contains.shared
    def _shared_contains(self, item: Item, within: int | None = None) -> tuple[SharedCall, bytes]:
        slices = check_within(within, self.config.slices)
        contains = partial(self._contains_digests, within=slices)
        return SharedCall(("contains", slices), self.run, contains), self.config.digest(item)

    @verb
    def contains_many(self, items: Iterable[Item], within: int | None = None) -> Flow[list[bool]]:
        """Return the answer of ``contains`` for each item, in order."""
        digests = self.config.digests_of(items)
        answers = yield from self._contains_digests(digests, within)
        return [bool(answers[digest]) for digest in digests]

    @verb
    def last_seen(self, item: Item) -> Flow[Period | None]:
        """Return the label, start and end of the newest slice that holds the item, or None. Nothing is changed.

        None means that the item was not seen within the window. An item counts for the slice in which it was new: a later
        ``add`` that finds it changes nothing.
        """
        return (yield from self._last_seen([self.config.digest(item)]))[0]

    @verb
    def last_seen_many(self, items: Iterable[Item]) -> Flow[list[Period | None]]:
        """Return the answer of ``last_seen`` for each item, in order."""
        return self._last_seen(self.config.digests_of(items))

    @verb
    def import_many(self, items: Iterable[Item], label: str | None = None) -> Flow[int]:
        """Remember the items in the slice with that label, or the current one, and return how many were written.

        Items that this slice or a newer one holds are not written.
        """
        digests, dispatcher = self.config.digests_of(items), self._dispatcher
        if label is not None and label not in dispatcher.current_view().labels:
            # The client's clock may be wrong.
            yield from ask_time(self.config, dispatcher.clock)
        age = dispatcher.current_view().age_of(label)
        batches = dispatcher.batches(digests, age + 1, age)
        for batch in batches:
            batch.label = label
        yield from dispatcher.send(batches, calls.commit, Knowledge.STORED)
        return sum((batch.answers or "").count("1") for batch in batches)

    @verb
    def keys(self, at: datetime | None = None) -> Flow[list[str]]:
        """Return the Redis keys of the slices that are live now, or ``at`` another time; oldest first."""
        at, config, clock = check_at(at), self.config, self._dispatcher.clock
        if at is None:
            yield from ask_time(config, clock)
        yield from check_stored(config)
        slices = config.window.live(to_ms(at) if at else clock.now())
        shards = range(config.shards)
        return [config.keys.slice(slice.label, shard) for slice in slices for shard in shards]

    @verb
    def info(self) -> Flow[FilterInfo]:
        """Return the contents of the filter, slice by slice."""
        return (yield from read_info(self.config, self._dispatcher.clock))

    @verb
    def warnings(self) -> Flow[list[str]]:
        """Return warnings about dangers and damage to the filter, a sentence each.

        A server may drop keys when its memory is full, or may have dropped slices early.
        """
        return (yield from read_overview(self.config, self._dispatcher.clock)).warnings

    @removing
    @verb
    def clear(self) -> Flow[None]:
        """Forget everything, for all clients, even if the filter is stored with other parameters.

        Each shard is cleared at once; several shards follow one another.
        """
        root = self.config.keys.root
        try:
            [stored] = yield from request([Call(("GET", root))])
            if stored is not None and text(stored) != self.config.stored:
                other = from_stored(self.config.name, text(stored), prefix=self.config.prefix)
                yield from FilterDispatcher(other).clear_all()
            yield from self._dispatcher.clear_all()
            yield from request([Call(("UNLINK", self.config.keys.fingerprinter()))])
        finally:
            # The local cache is invalid now. Answers in flight will not be cached either.
            self._dispatcher.view = None
        self._forget()

    def _forget(self) -> None:
        """Forget what this client has of the items, because the filter was cleared."""

    def _checked(self, within: int | None, keep: int | None) -> tuple[int, int]:
        """Return the age of the slice for new items, and the number of newest slices to check.

        Raise ConfigError if an argument can't be right.
        """
        slices = self.config.slices
        if within is None and keep is None:
            return 0, slices
        return check_keep(keep, within, slices), check_within(within, slices)

    def _add_digests(
        self, digests: Iterable[bytes], within: int | None = None, keep: int | None = None
    ) -> Flow[Answers]:
        """Add the items, and return their answers. An item without an answer is seen."""
        dispatcher, caches = self._dispatcher, self._cache.size > 0
        age, slices = self._checked(within, keep)
        to_send = self._not_cached(digests, slices) if caches else digests
        batches, view = dispatcher.batches(to_send, slices, age), dispatcher.view
        answers = yield from dispatcher.add(batches, calls.add)
        if caches:
            self._cache_seen([key for key in to_send if key in answers], view)
        return answers

    def _unless_full(
        self,
        digests: dict[bytes, None],
        add: Callable[[dict[bytes, None]], Flow[dict[bytes, Any]]],
        within: int | None,
    ) -> Flow[dict[bytes, Any]]:
        """Add items of several tasks. If a slice is full, the answer of each item that is new to its shard is FilterFull."""

        def is_refused(digest: bytes, error: FilterFull) -> bool:
            return shard_of(digest, self.config.shards) == error.shard

        contains = partial(self._contains_digests, within=within)
        return unless_full(digests, FilterFull, add, contains, is_refused)

    def _contains_digests(
        self, digests: Iterable[bytes], within: int | None = None
    ) -> Flow[dict[bytes, Any]]:
        """Return a true value for each item that was seen."""
        dispatcher, caches = self._dispatcher, self._cache.size > 0
        slices = check_within(within, self.config.slices)
        to_send = self._not_cached(digests, slices) if caches else digests
        batches, view = dispatcher.batches(to_send, slices), dispatcher.view
        yield from dispatcher.send(batches, calls.contains)
        answers = answers_of(batches)
        if not caches:
            return answers
        self._cache_seen([key for key in to_send if answers[key]], view)
        return dict.fromkeys(digests, True) | answers  # the local cache has the others

    def _last_seen(self, digests: list[bytes]) -> Flow[list[Period | None]]:
        batches = self._dispatcher.batches(digests, self.config.slices)
        yield from self._dispatcher.send(batches, calls.newest_slices)
        seen_in: dict[bytes, Period | None] = {}
        for batch in batches:
            periods = [None, *map(self.config.window.period, batch.header.view.slices)]
            slices = map(ord, batch.answers or "")
            seen_in.update(zip(batch.digests, map(periods.__getitem__, slices), strict=True))
        return [seen_in[digest] for digest in digests]

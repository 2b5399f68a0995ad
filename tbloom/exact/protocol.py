"""The verbs of an exact filter, as flows (see ``tbloom.engine.flow``). No I/O."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from functools import partial

from tbloom.engine.batches import Batch, answers_of, in_order
from tbloom.engine.buckets import bucket_keys
from tbloom.engine.flow import Command, Flow, ScriptCall, deliver, deliver_all, text
from tbloom.engine.scripts import Script
from tbloom.engine.server import check_stored, evictions
from tbloom.engine.tree import Tree, read_tree
from tbloom.errors import ConfigMismatch, TBloomError
from tbloom.exact.config import ExactConfig, from_stored
from tbloom.exact.exchange import ExactExchange
from tbloom.exact.info import ExactInfo
from tbloom.items import Item, check_ttl, encode, fingerprint, fingerprints_of
from tbloom.window import from_ms

_COUNT = Script("exact/count")


class ExactProtocol:
    """The verbs of one filter, for one client; ``ttl``: how long items are remembered (ms)."""

    def __init__(self, config: ExactConfig, ttl: int) -> None:
        self.config = config
        self._ttl = ttl
        self._exchange = ExactExchange(config)

    def add(self, item: Item, ttl: float | timedelta | None = None) -> Flow[bool]:
        """Is the item new?"""
        key = fingerprint(encode(item))
        answers = yield from self._exchange.add_items([key], self._ttl_ms(ttl))
        return answers.get(key, False)

    def add_many(
        self, items: Iterable[Item], ttl: float | timedelta | None = None
    ) -> Flow[list[bool]]:
        """Which of the items are new? A repeat within the call is not."""
        lasting, digests = self._ttl_ms(ttl), fingerprints_of(items)
        answers = yield from self._exchange.add_items(digests, lasting)
        return in_order(answers, digests)

    def assume_new(self, items: Iterable[Item]) -> None:
        """Drops the items' lost answers."""
        self._exchange.pending_answers.forget(fingerprints_of(items))

    def contains(self, item: Item) -> Flow[bool]:
        """Has the item been seen?"""
        key = fingerprint(encode(item))
        answers = answers_of((yield from self._look_up([key])))
        return answers[key]

    def contains_many(self, items: Iterable[Item]) -> Flow[list[bool]]:
        """Which of the items have been seen?"""
        digests = fingerprints_of(items)
        answers = answers_of((yield from self._look_up(digests)))
        return [answers[digest] for digest in digests]

    def discard(self, item: Item) -> Flow[bool]:
        """Was the item remembered? It is no more."""
        key = fingerprint(encode(item))
        answers = yield from self._exchange.discard([key])
        return answers[key]

    def discard_many(self, items: Iterable[Item]) -> Flow[list[bool]]:
        """Which of the items were remembered? They are no more."""
        digests = fingerprints_of(items)
        return in_order((yield from self._exchange.discard(digests)), digests)

    def expires(self, item: Item) -> Flow[datetime | None]:
        """When is the item forgotten?"""
        return (yield from self._expiries([fingerprint(encode(item))]))[0]

    def expires_many(self, items: Iterable[Item]) -> Flow[list[datetime | None]]:
        """When is each of the items forgotten?"""
        return (yield from self._expiries(fingerprints_of(items)))

    def clear(self) -> Flow[None]:
        """Forgets everything, also if it is stored with another number of shards."""
        root = self.config.keys.root
        [stored] = yield from deliver([Command(("GET", root))])
        if stored is not None and text(stored) != self.config.stored:
            other = from_stored(self.config.name, text(stored))
            if other is None:
                differences = self.config.differences(text(stored))
                raise ConfigMismatch(self.config.name, differences, text(stored))
            yield from _clear(ExactExchange(other))
        yield from _clear(self._exchange)
        yield from deliver([Command(("UNLINK", self.config.keys.fingerprinter()))])

    def info(self) -> Flow[ExactInfo]:
        """What the filter holds."""
        config = self.config
        yield from check_stored(config)
        items = dead = memory = buckets = 0
        for shard in range(config.shards):
            tree = yield from read_tree(config.name, config.keys.layout(shard))
            groups = bucket_keys(config.keys.buckets(tree.generation, shard), tree)
            buckets += sum(map(len, groups))
            calls = [ScriptCall(_COUNT, keys, (tree.generation,)) for keys in groups]
            for counted in (yield from deliver_all(calls)):
                items, dead, memory = items + counted[0], dead + counted[1], memory + counted[2]
        return ExactInfo(
            name=config.name,
            shards=config.shards,
            items=items,
            dead=dead,
            buckets=buckets,
            bytes=memory,
            warnings=tuple((yield from self.warnings())),
        )

    def warnings(self) -> Flow[list[str]]:
        """What threatens the filter."""
        shards = range(self.config.shards)
        return (yield from evictions([*map(self.config.keys.config, shards)]))

    def _ttl_ms(self, ttl: float | timedelta | None) -> int:
        return self._ttl if ttl is None else check_ttl(ttl)

    def _expiries(self, digests: list[int]) -> Flow[list[datetime | None]]:
        found: dict[int, datetime] = {}
        for batch in (yield from self._look_up(digests, times=True)):
            answers = zip(batch.digests, batch.answers or "", strict=True)
            seen = [key for key, answer in answers if answer == "1"]
            found.update(zip(seen, map(_instant, batch.times), strict=True))
        return [found.get(key) for key in digests]

    def _look_up(self, digests: list[int], *, times: bool = False) -> Flow[list[Batch]]:
        exchange = self._exchange
        batches = exchange.batches(digests)
        yield from exchange.ask(batches, partial(exchange.contains_call, times=times))
        return batches


def _instant(ms: int) -> datetime:
    try:
        return from_ms(ms)
    except OverflowError:  # of an entry that another program has changed
        return datetime.max.replace(tzinfo=timezone.utc)


def _clear(exchange: ExactExchange) -> Flow[None]:
    config = exchange.config
    if config.shards > 1:
        # First, so that any client that adds to a cleared shard compares the parameters again.
        yield from deliver([Command(("UNLINK", config.keys.root))])
    exchange.forget()
    for shard in range(config.shards):
        try:
            tree = yield from read_tree(config.name, config.keys.layout(shard))
        except TBloomError:  # not tbloom's layout, so no buckets can be found by it
            tree = Tree("")
        cleared = Batch([], shard, generation=tree.generation)
        yield from exchange.change([cleared], exchange.clear_call)
        prefix = config.keys.buckets(tree.generation, shard)
        yield from deliver_all([Command(("UNLINK", *keys)) for keys in bucket_keys(prefix, tree)])

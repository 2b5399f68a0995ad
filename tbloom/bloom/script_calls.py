"""The script calls that can be made while one slice is current. Arguments that all calls share are prepared once."""

from __future__ import annotations

import time
from collections.abc import Hashable
from itertools import groupby, pairwise

from tbloom.bloom.config import Config
from tbloom.bloom.hasher import digests_for, packed
from tbloom.bloom.layout import Layout, Part
from tbloom.engine.batches import Batch
from tbloom.engine.flow import ScriptCall
from tbloom.engine.scripts import Script
from tbloom.engine.tokens import LANE_TTL_MS, CallTemplate
from tbloom.errors import ConfigError
from tbloom.window import ALWAYS

_ADD = Script("bloom/add")
_CONTAINS = Script("bloom/contains")
_LAST_SEEN = Script("bloom/last_seen")
_CLEAR = Script("bloom/clear")
_OPEN = Script("bloom/open")
_BEGIN_SLICE = Script("bloom/begin_slice")

#: The shards of a slice are dropped at 256 different times, 100 ms apart.
_SPREAD_MS, _SPREAD = 100, 256


def leaves(config: Config, expires: int, shard: int | None) -> int:
    """When a shard's keys are dropped (ms), for a slice that leaves the window at ``expires``.

    Shards leave one after another, so that the server does not drop all of them at once. The key
    that they agree on (None) leaves last.
    """
    if config.shards == 1 or expires == ALWAYS.end:
        return expires
    return expires + (_SPREAD if shard is None else shard % _SPREAD) * _SPREAD_MS


def lasts_ms(config: Config) -> int | None:
    """How long an item is remembered that is added now, by the client's clock; None: for ever."""
    if config.granularity is None:
        return None
    now = time.time_ns() // 1_000_000
    [current] = config.window.live(now, newest=1)
    return leaves(config, config.window.expires(current), None) - now


class ShardCalls:
    """The parts of one shard's live slices, newest first, and what its calls have in common."""

    __slots__ = (
        "_digests",
        "_parts",
        "current",
        "digests",
        "grown",
        "keys",
        "layout",
        "slice_ends",
        "templates",
    )

    def __init__(self, config: Config, shard: int, labels: list[str], layout: Layout) -> None:
        self.keys: list[str] = []
        #: For each slice, newest first: the number of keys that it and the newer ones have.
        self.slice_ends: list[int] = []
        self._parts: list[Part] = []
        for label in labels:
            own = layout.parts(label)
            self._parts += reversed(own)
            numbers = reversed(range(len(own)))
            self.keys += [config.keys.slice(label, shard, number) for number in numbers]
            self.slice_ends.append(len(self._parts))
        self.current = self._parts[0]
        self.layout = layout
        #: The layout for when the current part is full.
        self.grown = layout.grown(labels[0], labels) if config.grow else ""
        #: By what they are made from.
        self.templates: dict[Hashable, CallTemplate] = {}
        #: For each slice: the digests that its items and those of the newer ones are packed with (``hasher.packed``).
        self.digests = [
            digests_for(max(part.hashes for part in self._parts[:parts]))
            for parts in self.slice_ends
        ]

    def sizes(self, parts: int) -> str:
        """The sizes of the newest ``parts`` parts, for the scripts' ``groups_of``."""
        like = groupby(self._parts[:parts], lambda part: f"{part.blocks}:{part.hashes}")
        return " ".join(f"{size}:{sum(1 for _ in group)}" for size, group in like)


class SliceCalls:
    """A filter's script calls, valid for the slice that ``now`` (ms) lies in."""

    __slots__ = (
        "_expires",
        "_layouts",
        "_shards",
        "begins",
        "config",
        "ends",
        "labels",
        "slices",
    )

    def __init__(self, config: Config, now: int, layouts: dict[int, Layout]) -> None:
        #: The live slices, newest first, and their labels.
        self.slices = config.window.live(now)[::-1]
        self.labels = [slice.label for slice in self.slices]
        current = self.slices[0]
        self.config = config
        self.begins, self.ends = current.start, current.end
        self._expires = config.window.expires(current)
        self._layouts = layouts
        self._shards: dict[int, ShardCalls] = {}

    def fits(self, now: int) -> bool:
        """True if the slice is current at ``now``."""
        return self.begins <= now < self.ends

    def layout(self, shard: int) -> Layout:
        """The shard's layout, as the client knows it."""
        return self._layouts.get(shard) or Layout(self.config)

    def check_live(self, label: str) -> None:
        """Raises ConfigError if the slice is not live."""
        if label not in self.labels:
            raise ConfigError("slice", label, f"one that is live: {', '.join(self.labels)}")

    def must_begin_after(self, shard: int) -> str | None:
        """The slice whose size decides how the current one begins; None: it begins as usual, or has begun."""
        return self.layout(shard).newest_before(self.labels[0], self.labels)

    def expires_at(self, shard: int | None) -> int:
        """When the shard's keys of the current slice are dropped (ms)."""
        return leaves(self.config, self._expires, shard)

    def learn_layout(self, shard: int, text: str) -> None:
        """Replaces the shard's layout."""
        self._shards.pop(shard, None)
        self._layouts.pop(shard, None)
        if text:
            self._layouts[shard] = Layout(self.config, text)

    def shard(self, shard: int) -> ShardCalls:
        """What all calls to a shard share."""
        calls = self._shards.get(shard)
        if calls is None:
            calls = ShardCalls(self.config, shard, self.labels, self.layout(shard))
            self._shards[shard] = calls
        return calls

    def add(self, within: int, batch: Batch) -> ScriptCall:
        """``lua/bloom/add.lua``; the batch has a token."""
        # Not by shard(), because each call comes here.
        shard = self._shards.get(batch.shard) or self.shard(batch.shard)
        batch.generation = shard.layout.generation
        template = shard.templates.get((_ADD, within, batch.agreed)) or self._new_add(within, batch)
        return template.fill(packed(batch.digests, shard.digests[within - 1]), batch.token)

    def _new_add(self, within: int, batch: Batch) -> CallTemplate:
        keys, shard = self.config.keys, self.shard(batch.shard)
        parts = shard.slice_ends[within - 1]
        template = shard.templates[_ADD, within, batch.agreed] = CallTemplate(
            _ADD,
            (
                keys.config(batch.shard),
                keys.layout(batch.shard),
                keys.register(batch.shard),
                *shard.keys[:parts],
            ),
            (
                self.config.stored,
                self.begins,
                self.ends,
                self.expires_at(batch.shard),
                LANE_TTL_MS,
                self.agreed(batch),
                shard.layout.text,
                shard.grown,
                shard.current.capacity,
                shard.sizes(parts),
            ),
            lanes=keys.lanes(batch.shard),
        )
        return template

    def contains(self, within: int, batch: Batch) -> ScriptCall:
        """``lua/bloom/contains.lua``."""
        keys, shard = self.config.keys, self.shard(batch.shard)
        parts = shard.slice_ends[within - 1]
        template = shard.templates.get((_CONTAINS, within, batch.agreed))
        if template is None:
            template = shard.templates[_CONTAINS, within, batch.agreed] = CallTemplate(
                _CONTAINS,
                (keys.config(batch.shard), keys.layout(batch.shard), *shard.keys[:parts]),
                (
                    self.config.stored,
                    self.begins,
                    self.ends,
                    self.agreed(batch),
                    shard.layout.text,
                    shard.sizes(parts),
                ),
            )
        return template.fill(packed(batch.digests, shard.digests[within - 1]))

    def last_seen(self, batch: Batch) -> ScriptCall:
        """``lua/bloom/last_seen.lua``."""
        keys, shard = self.config.keys, self.shard(batch.shard)
        counts = [last - first for first, last in pairwise([0, *shard.slice_ends])]
        return ScriptCall(
            _LAST_SEEN,
            (keys.config(batch.shard), keys.layout(batch.shard), *shard.keys),
            (
                self.config.stored,
                self.begins,
                self.ends,
                self.agreed(batch),
                shard.layout.text,
                shard.sizes(len(shard.keys)),
                " ".join(map(str, counts)),
                packed(batch.digests, shard.digests[-1]),
            ),
        )

    def clear(self, batch: Batch) -> ScriptCall:
        """``lua/bloom/clear.lua``; the batch has a token, and no items."""
        keys, shard = self.config.keys, self.shard(batch.shard)
        assert batch.token is not None  # noqa: S101 - the exchange has given it one
        return ScriptCall(
            _CLEAR,
            (
                keys.config(batch.shard),
                keys.lanes(batch.shard) + batch.token.name,
                keys.layout(batch.shard),
                keys.register(batch.shard),
                keys.claims(batch.shard),
                keys.sessions(batch.shard),
                *shard.keys,
            ),
            (
                self.config.stored,
                batch.number,
                self.begins,
                self.ends,
                self.expires_at(batch.shard),
                LANE_TTL_MS,
                shard.layout.text,
            ),
        )

    def open(self, store: int) -> ScriptCall:
        """``lua/bloom/open.lua``."""
        times = (self.begins, self.ends, self.expires_at(None))
        return ScriptCall(_OPEN, (self.config.keys.root,), (self.config.stored, *times, store))

    def begin(self, shard: int, items: int) -> ScriptCall:
        """``lua/bloom/begin_slice.lua``, to begin the current slice with room for ``items``."""
        layout, label, keys = self.layout(shard), self.labels[0], self.config.keys
        return ScriptCall(
            _BEGIN_SLICE,
            (keys.config(shard), keys.layout(shard), keys.slice(label, shard)),
            (
                self.config.stored,
                layout.text,
                layout.begun(label, self.labels, items),
                layout.grown(label, self.labels),
                self.begins,
                self.ends,
                self.expires_at(shard),
            ),
        )

    def agreed(self, batch: Batch) -> int:
        """1: the client has agreed on the filter's parameters."""
        # A single shard's script compares them itself.
        return int(batch.agreed or self.config.shards == 1)

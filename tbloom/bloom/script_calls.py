"""The script calls that can be made while one slice is current. Arguments that all calls share are prepared once."""

from __future__ import annotations

from functools import lru_cache
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any

from tbloom.bloom.config import Config
from tbloom.bloom.hasher import Hasher
from tbloom.bloom.layout import Layout, Part
from tbloom.bloom.sizing import HEADER_BITS
from tbloom.engine.batches import Batch
from tbloom.engine.flow import ScriptCall
from tbloom.engine.scripts import Script
from tbloom.engine.tokens import LANE_TTL_MS
from tbloom.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

#: The keys, and the arguments, that several calls of a script share.
Terms = tuple[tuple[str, ...], tuple[Any, ...]]

_ADD = Script("bloom/add")
_CONTAINS = Script("bloom/contains")
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
    if config.shards == 1:
        return expires
    return expires + (_SPREAD if shard is None else shard % _SPREAD) * _SPREAD_MS


@lru_cache(maxsize=1024)
def hasher_of(bits: int, hashes: int) -> Hasher:
    """The hasher for parts of this size, shared by all filters."""
    return Hasher(bits, hashes)


class ShardCalls:
    """The parts of one shard's live slices, newest first."""

    __slots__ = (
        "_sizes",
        "_used",
        "add_terms",
        "commit_terms",
        "current",
        "grown",
        "hashers",
        "keys",
        "layout",
        "slice_ends",
    )

    def __init__(self, config: Config, shard: int, labels: list[str], layout: Layout) -> None:
        self.keys: list[str] = []
        #: For each slice, newest first: the number of keys that it and the newer ones have.
        self.slice_ends: list[int] = []
        parts: list[Part] = []
        for label in labels:
            own = layout.parts(label)
            parts += reversed(own)
            numbers = reversed(range(len(own)))
            self.keys += [config.keys.slice(label, shard, number) for number in numbers]
            self.slice_ends.append(len(parts))
        self.current = parts[0]
        self.layout = layout
        #: The layout for when the current part is full.
        self.grown = layout.grown(labels[0], labels) if config.grow else ""
        sizes = list(dict.fromkeys((part.bits, part.hashes) for part in parts))
        self.hashers = [hasher_of(*size) for size in sizes]
        begins = dict(zip(sizes, accumulate((size[1] for size in sizes), initial=0), strict=False))
        self._sizes = [f"{begins[part.bits, part.hashes]} {part.hashes}" for part in parts]
        # The number of hashers that the newest part needs, the newest two parts, ...
        places = {size: place for place, size in enumerate(sizes, 1)}
        self._used = list(accumulate((places[part.bits, part.hashes] for part in parts), max))
        #: Keys and arguments that are the same in each call of ``lua/bloom/add.lua``, by (within, agreed).
        self.add_terms: dict[tuple[int, bool], Terms] = {}
        #: The same for ``lua/bloom/claims/commit.lua``, by (label, agreed).
        self.commit_terms: dict[tuple[str, bool], Terms] = {}

    def sizes(self, parts: int) -> str:
        """Which of an item's positions belong to each of the newest ``parts`` parts, for the scripts' ``sizes_of``."""
        if len(self.hashers) == 1:
            return self._sizes[0][2:]
        return " ".join(self._sizes[:parts])

    def positions(self, digest: int, parts: int) -> list[int]:
        """The positions of an item's bits in the keys of the newest ``parts`` parts, size by size."""
        hashers = self.hashers[: self._used[parts - 1]]
        return [HEADER_BITS + bit for hasher in hashers for bit in hasher.offsets(digest)]


class Positions:
    """The positions of some items' bits in a shard's newest parts, computed at each iteration."""

    __slots__ = ("_digests", "_parts", "_shard")

    def __init__(self, shard: ShardCalls, digests: list[int], parts: int) -> None:
        self._shard, self._digests, self._parts = shard, digests, parts

    def __iter__(self) -> Iterator[int]:
        return chain.from_iterable(
            self._shard.positions(digest, self._parts) for digest in self._digests
        )


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
    )

    def __init__(self, config: Config, now: int, layouts: dict[int, Layout]) -> None:
        slices = config.window.live(now)
        current = slices[-1]
        self.config = config
        self.begins, self.ends = current.start, current.end
        self._expires = config.window.expires(current)
        #: The labels of the live slices, newest first.
        self.labels = [slice.label for slice in reversed(slices)]
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
        shard = self.shard(batch.shard)
        terms = shard.add_terms.get((within, batch.agreed))
        if terms is None:
            terms = shard.add_terms[within, batch.agreed] = self._add_terms(within, batch)
        keys, args = terms
        return ScriptCall(
            _ADD,
            (self._lane(batch), *keys),
            (batch.number, *args),
            Positions(shard, batch.digests, shard.slice_ends[within - 1]),
        )

    def _add_terms(self, within: int, batch: Batch) -> Terms:
        config, shard = self.config, self.shard(batch.shard)
        parts = shard.slice_ends[within - 1]
        return (
            (
                config.keys.config(batch.shard),
                config.keys.layout(batch.shard),
                config.keys.register(batch.shard),
                *shard.keys[:parts],
            ),
            (
                config.stored,
                self.begins,
                self.ends,
                self.expires_at(batch.shard),
                LANE_TTL_MS,
                self.agreed(batch),
                shard.layout.text,
                shard.grown,
                shard.current.capacity,
                HEADER_BITS + shard.current.bits - 1,
                shard.sizes(parts),
            ),
        )

    def contains(self, within: int, batch: Batch) -> ScriptCall:
        """``lua/bloom/contains.lua``."""
        config, shard = self.config, self.shard(batch.shard)
        keys = shard.slice_ends[within - 1]
        return ScriptCall(
            _CONTAINS,
            (
                config.keys.config(batch.shard),
                config.keys.layout(batch.shard),
                *shard.keys[:keys],
            ),
            (
                config.stored,
                self.begins,
                self.ends,
                self.agreed(batch),
                shard.layout.text,
                shard.sizes(keys),
            ),
            Positions(shard, batch.digests, keys),
        )

    def clear(self, batch: Batch) -> ScriptCall:
        """``lua/bloom/clear.lua``; the batch has a token, and no items."""
        keys, shard = self.config.keys, self.shard(batch.shard)
        return ScriptCall(
            _CLEAR,
            (
                keys.config(batch.shard),
                self._lane(batch),
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

    def open(self, *, store: bool) -> ScriptCall:
        """``lua/bloom/open.lua``."""
        times = (self.begins, self.ends, self.expires_at(None))
        return ScriptCall(_OPEN, (self.config.keys.root,), (self.config.stored, *times, int(store)))

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

    def _lane(self, batch: Batch) -> str:
        lane = batch.lane
        assert lane is not None  # noqa: S101 - the protocol has taken one
        return self.config.keys.lane(lane.client, lane.lane, batch.shard)

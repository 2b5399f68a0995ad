"""The script calls that can be made while one slice is current: what stays the same is prepared once."""

from __future__ import annotations

from tbloom import scripts
from tbloom.batches import Batch
from tbloom.calls import ScriptCall
from tbloom.config import Config
from tbloom.lanes import LANE_TTL_MS
from tbloom.sizing import HEADER_BITS


class Plan:
    """A filter's script calls at ``now`` (ms), good for as long as ``now`` lies in the same slice."""

    __slots__ = ("_begins", "_config", "_ends", "_expires", "_keys", "_labels")

    def __init__(self, config: Config, now: int) -> None:
        slices = config.window.live(now)
        current = slices[-1]
        self._config = config
        self._begins, self._ends = current.start, current.end
        self._expires = config.window.expires(current)
        self._labels = [slice.label for slice in reversed(slices)]
        self._keys: dict[int, tuple[str, ...]] = {}

    def fits(self, now: int) -> bool:
        """Whether the plan's slice is current at ``now``."""
        return self._begins <= now < self._ends

    def add(self, within: int, batch: Batch) -> ScriptCall:
        """``lua/add.lua``; the batch has a lane."""
        shard = batch.shard
        return ScriptCall(
            scripts.ADD,
            (self._config.keys.config(shard), self._lane(batch), *self._slices(shard)[:within]),
            (
                self._config.stored,
                batch.number,
                self._begins,
                self._ends,
                self._expires,
                LANE_TTL_MS,
                HEADER_BITS + self._config.shard_bits - 1,
                self._agreed(batch),
                *map(self._positions, batch.digests),
            ),
        )

    def contains(self, within: int, batch: Batch) -> ScriptCall:
        """``lua/contains.lua``."""
        shard = batch.shard
        return ScriptCall(
            scripts.CONTAINS,
            (self._config.keys.config(shard), *self._slices(shard)[:within]),
            (
                self._config.stored,
                self._begins,
                self._ends,
                self._agreed(batch),
                *map(self._positions, batch.digests),
            ),
        )

    def clear(self, batch: Batch) -> ScriptCall:
        """``lua/clear.lua``; the batch has a lane, and no items."""
        shard = batch.shard
        return ScriptCall(
            scripts.CLEAR,
            (self._config.keys.config(shard), self._lane(batch), *self._slices(shard)),
            (
                self._config.stored,
                batch.number,
                self._begins,
                self._ends,
                self._expires,
                LANE_TTL_MS,
            ),
        )

    def open(self, *, store: bool) -> ScriptCall:
        """``lua/open.lua``."""
        times = (self._begins, self._ends, self._expires)
        return ScriptCall(
            scripts.OPEN, (self._config.keys.root,), (self._config.stored, *times, int(store))
        )

    def _agreed(self, batch: Batch) -> int:
        # A single shard is the place where parameters are compared.
        return int(batch.agreed or self._config.shards == 1)

    def _lane(self, batch: Batch) -> str:
        lane = batch.lane
        assert lane is not None  # noqa: S101 - the protocol has taken one
        return self._config.keys.lane(lane.client, lane.lane, batch.shard)

    def _slices(self, shard: int) -> tuple[str, ...]:
        """The shard's slice keys, newest first."""
        keys = self._keys.get(shard)
        if keys is None:
            keys = tuple(self._config.keys.slice(label, shard) for label in self._labels)
            self._keys[shard] = keys
        return keys

    def _positions(self, digest: int) -> str:
        """The positions of an item's bits in a slice's key, as the scripts want them."""
        return " ".join([str(HEADER_BITS + bit) for bit in self._config.hasher.offsets(digest)])

"""The parts of one shard's live slices, where they are in memory now, and looks at items in them.

The two kinds of looks answer alike: with numpy, for all items together; without it, item by item.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from tbloom.bloom.hasher import Hasher
from tbloom.bloom.script_calls import SliceCalls, hasher_of
from tbloom.bloom.sizing import key_bytes
from tbloom.errors import TBloomError
from tbloom.local.memory import Store
from tbloom.local.parts import Part, PlainBits

if TYPE_CHECKING:
    from tbloom.bloom.layout import Part as Size


class Group(NamedTuple):
    """Parts of one size."""

    hasher: Hasher
    parts: list[Part]
    rows: list[PlainBits]


def key_of(label: str, shard: int, number: int) -> str:
    """The name of a slice's ``number``-th part in a store."""
    return f"{label}:{shard}:{number}"


def part_of(store: Store, key: str, size: Size) -> Part | None:
    """The part of that name; None where it has not begun."""
    entry = store.contents.parts.get(key)
    if entry is None:
        return None
    if entry.size != key_bytes(size.bits):
        raise _damaged(
            f"part {key!r} has {entry.size} bytes, and should have {key_bytes(size.bits)}"
        )
    part = Part(store.buffer(key), entry.expires)
    if part.items > 2 * size.capacity:  # no add goes beyond the capacity
        raise _damaged(f"part {key!r} counts {part.items} items, and has room for {size.capacity}")
    return part


def _damaged(why: str) -> TBloomError:
    return TBloomError(f"{why}: what keeps the filter is damaged; clear() it")


class Shard:
    """The live parts of one shard."""

    __slots__ = (
        "_all",
        "_ends",
        "_groups",
        "begun",
        "current",
        "grown",
        "hasher",
        "key",
        "size",
    )

    def __init__(self, store: Store, current: SliceCalls, number: int) -> None:
        calls = current.shard(number)
        self._ends = calls.slice_ends
        #: The layout once the current part is full.
        self.grown = calls.grown
        self._all: list[tuple[Size, Part | None]] = []
        layout, is_stored = current.layout(number), store.contents.stored == current.config.stored
        for label in current.labels:
            own = layout.parts(label)
            for place in reversed(range(len(own))):
                key = key_of(label, number, place)
                part = part_of(store, key, own[place]) if is_stored else None
                self._all.append((own[place], part))
        #: The part that new items go into: its size, its name, and the part itself once it has begun.
        self.size, self.current = self._all[0]
        self.key = key_of(current.labels[0], number, self._ends[0] - 1)
        self.hasher = hasher_of(self.size.bits, self.size.hashes)
        #: False: the current slice needs a layout before items can be added.
        self.begun = current.must_begin_after(number) is None
        self._groups: dict[int, list[Group]] = {}

    def groups(self, within: int) -> list[Group]:
        """The parts of the newest ``within`` slices, by size; the current part's size comes first."""
        groups = self._groups.get(within)
        if groups is None:
            sizes: dict[tuple[int, int], Group] = {}
            for size, part in self._all[: self._ends[within - 1]]:
                group = sizes.setdefault(size[1:], Group(hasher_of(size.bits, size.hashes), [], []))
                if part is not None:
                    group.parts.append(part)
                    group.rows.append(part.bits)
            groups = self._groups[within] = list(sizes.values())
        return groups

    def holds(self, digest: int, offsets: Sequence[int], within: int) -> bool:
        """True: a part of the newest ``within`` slices has the item, whose ``offsets`` are those in the current part."""
        own, *others = self.groups(within)
        for row in own.rows:
            for offset in offsets:
                if not row[offset]:
                    break
            else:
                return True
        for group in others:
            theirs = group.hasher.offsets(digest) if group.rows else ()
            if any(all(map(row.__getitem__, theirs)) for row in group.rows):
                return True
        return False

    def add(self, digest: int, within: int) -> bool | None:
        """Adds the item; True: it is new. None: nothing is done, because more than bits must change."""
        offsets = self.hasher.offsets(digest)
        if self.holds(digest, offsets, within):
            return False
        current = self.current
        if current is None or current.items + 1 >= self.size.capacity:
            return None
        current.raise_count(1)
        current.bits[offsets] = 1
        return True


class Look(Protocol):
    """A look at some items in a shard, before any of them is added."""

    #: The places of the new items, in order.
    new: list[int]

    def add(self, count: int, current: Part) -> None:
        """Sets the bits of the first ``count`` new items."""


class PlainLook:
    """A look, item by item."""

    def __init__(self, shard: Shard, digests: list[int], within: int) -> None:
        self.new: list[int] = []
        self._offsets: list[Sequence[int]] = []
        for place, digest in enumerate(digests):
            offsets = shard.hasher.offsets(digest)
            if not shard.holds(digest, offsets, within):
                self.new.append(place)
                self._offsets.append(offsets)

    def add(self, count: int, current: Part) -> None:
        """Sets the bits of the first ``count`` new items."""
        for offsets in self._offsets[:count]:
            current.bits[offsets] = 1

"""The parts of one shard's live slices, where they are in memory now, and looks at many items in them.

Two kinds of looks answer alike: with numpy, for all items together; without it, item by item.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from tbloom.bloom.hasher import Hasher
from tbloom.bloom.script_calls import SliceCalls, hasher_of
from tbloom.bloom.sizing import key_bytes
from tbloom.errors import TBloomError
from tbloom.local.memory import Store
from tbloom.local.parts import Bits, Part

if TYPE_CHECKING:
    from tbloom.bloom.layout import Part as Size


class Group(NamedTuple):
    """Parts of one size."""

    hasher: Hasher
    parts: list[Part]
    rows: list[Bits]


def key_of(label: str, shard: int, number: int) -> str:
    """What the ``number``-th part of one shard of a slice is called in a store."""
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
    if part.items > 2 * size.capacity:  # whoever adds stops at the capacity, or next to it
        raise _damaged(f"part {key!r} counts {part.items} items, and has room for {size.capacity}")
    return part


def _damaged(why: str) -> TBloomError:
    return TBloomError(f"{why}: what keeps the filter is damaged; clear() it")


class Bound:
    """What a plan says of one shard, and the parts that there are."""

    __slots__ = (
        "_all",
        "_groups",
        "begun",
        "current",
        "hasher",
        "key",
        "plan",
        "size",
    )

    def __init__(self, store: Store, plan: SliceCalls, shard: int) -> None:
        self.plan = plan.shard(shard)
        self._all: list[tuple[Size, Part | None]] = []
        layout, has_any = plan.layout(shard), store.contents.stored == plan.config.stored
        for label in plan.labels:
            own = layout.parts(label)
            for number in reversed(range(len(own))):
                key = key_of(label, shard, number)
                part = part_of(store, key, own[number]) if has_any else None
                self._all.append((own[number], part))
        #: The part that new items go into: how large it is, what it is called, and itself if it has begun.
        self.size, self.current = self._all[0]
        self.key = key_of(plan.labels[0], shard, self.plan.slice_ends[0] - 1)
        self.hasher = hasher_of(self.size.bits, self.size.hashes)
        #: Whether nothing has to be done before items may be added.
        self.begun = plan.must_begin_after(shard) is None
        self._groups: dict[int, list[Group]] = {}

    def groups(self, within: int) -> list[Group]:
        """The parts of the newest so many slices, by size; the current one's size comes first."""
        groups = self._groups.get(within)
        if groups is None:
            sizes: dict[tuple[int, int], Group] = {}
            for size, part in self._all[: self.plan.slice_ends[within - 1]]:
                group = sizes.setdefault(size[1:], Group(hasher_of(size.bits, size.hashes), [], []))
                if part is not None:
                    group.parts.append(part)
                    group.rows.append(part.bits)
            groups = self._groups[within] = list(sizes.values())
        return groups

    def holds(self, digest: int, offsets: Sequence[int], within: int) -> bool:
        """Whether any part of the newest so many slices has the item; ``offsets`` are those in the current part."""
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
        """Adds the item if it is new; was it? None, with nothing done, where more than bits must change."""
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
    """What a shard held of some items, before any of them is added."""

    def new(self, begin: int, end: int, current: Part | None) -> Any:
        """Which of the items from ``begin`` up to ``end`` are new, by their numbers; ``current`` is looked at again."""

    def add(self, numbers: Any, current: Part) -> None:
        """Sets the bits of these items."""


class PlainLook:
    """Item by item."""

    def __init__(self, bound: Bound, digests: list[int], within: int) -> None:
        self._bound, self._digests, self._within = bound, digests, within
        self._offsets: dict[int, Sequence[int]] = {}

    def new(self, begin: int, end: int, current: Part | None) -> Sequence[int]:
        """Which of the items are new."""
        bound, found = self._bound, []
        for number in range(begin, end):
            digest = self._digests[number]
            offsets = bound.hasher.offsets(digest)
            if bound.holds(digest, offsets, self._within) or (
                # It may have begun meanwhile.
                bound.current is None
                and current is not None
                and current.first_zero(offsets) is None
            ):
                continue
            self._offsets[number] = offsets
            found.append(number)
        return found

    def add(self, numbers: Sequence[int], current: Part) -> None:
        """Sets the bits of these items."""
        for number in numbers:
            current.bits[self._offsets.pop(number)] = 1

"""The parts of one shard's live slices in memory, and the places of an item's bits in them."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from itertools import accumulate
from operator import getitem
from typing import TYPE_CHECKING, NamedTuple

from mmh3 import mmh3_32_uintdigest

from tbloom.bloom.hasher import columns_of, digests_for
from tbloom.bloom.sizing import COLUMNS, ROW_BYTES, block_step, key_bytes
from tbloom.bloom.view import View
from tbloom.errors import TBloomError
from tbloom.local.memory import Store

if TYPE_CHECKING:
    from tbloom.bloom.layout import Layout
    from tbloom.bloom.layout import Part as PartSize

#: The bytes of a part before its first row: the number of its items.
HEADER_BYTES = 8
#: An item's bits in its block: for each row the byte, and the bit's value in it.
Bits = list[tuple[int, int]]
#: The offset of an item's block in a part, and the item's bits in the block.
Place = tuple[int, Bits]


@lru_cache(maxsize=64)
def _bits_by_column(hashes: int) -> list[Bits]:
    """Return the bits of the columns of each row. Looking them up takes a third of the time of computing them."""
    return [
        [(row * ROW_BYTES + (column >> 3), 128 >> (column & 7)) for column in range(COLUMNS)]
        for row in range(hashes)
    ]


class Part:
    """One part of a slice, where it is in memory: the count of its items, and their bits in blocks (docs/format.md).

    The count is raised before the bits are set: a process that is killed in between has counted an item that it never
    answered, and has answered none that is not counted.
    """

    __slots__ = ("buffer", "count", "expires")

    def __init__(self, buffer: memoryview, expires: int) -> None:
        #: When its slice leaves the window (ms).
        self.expires: int = expires
        #: All its bytes.
        self.buffer: memoryview[int] = buffer
        #: The number of items added, as its only element, in the machine's own byte order.
        self.count: memoryview[int] = buffer[:HEADER_BYTES].cast("Q")

    @property
    def items(self) -> int:
        """The number of items added."""
        return self.count[0]

    def has(self, place: Place) -> bool:
        """Return whether all bits of the item are set."""
        start, bits = place
        block = self.buffer[start:]
        for byte, bit in bits:  # noqa: SIM110 - all() takes twice the time
            if not block[byte] & bit:
                return False
        return True

    def add(self, place: Place) -> None:
        """Count an item, and set its bits."""
        self.count[0] += 1
        start, bits = place
        block = self.buffer[start:]
        for byte, bit in bits:
            block[byte] |= bit


class Group(NamedTuple):
    """The parts of one size, and what an item's place in them is computed from."""

    blocks: int
    #: The bytes from one block to the next.
    step: int
    #: The number of digests that an item's columns need.
    digests: int
    bits_by_column: list[Bits]
    parts: list[Part]


def key_of(label: str, shard: int, number: int) -> str:
    """Return the name of a slice's ``number``-th part in a store."""
    return f"{label}:{shard}:{number}"


def part_bytes(size: PartSize) -> int:
    """Return the size (bytes) of a part, with its header."""
    return HEADER_BYTES + key_bytes(size.bits)


def part_of(store: Store, key: str, size: PartSize) -> Part | None:
    """Return the part of that name, or None if it does not exist."""
    entry = store.contents.parts.get(key)
    if entry is None:
        return None
    part = Part(store.buffer(key), entry.expires)
    # No add goes beyond the capacity.
    if entry.size != part_bytes(size) or part.items > 2 * size.capacity:
        raise TBloomError(
            f"part {key!r} has {entry.size} bytes and {part.items} items, and has room for {size.capacity}: the store "
            "is damaged; clear() the filter"
        )
    return part


def parts_of(
    store: Store, current: View, label: str, shard: int
) -> list[tuple[PartSize, Part | None]]:
    """Return the parts of a live slice, oldest first; None for one that does not exist."""
    is_stored = store.contents.stored == current.config.stored
    return [
        (size, part_of(store, key_of(label, shard, number), size) if is_stored else None)
        for number, size in enumerate(current.layout(shard).parts(label))
    ]


def _grown(layout: Layout, age: int, parts: dict[str, list[tuple[PartSize, Part | None]]]) -> str:
    """Return the layout with another part for the slice of this age (see ``FilterDispatcher``)."""
    labels = [*parts]
    older = labels[age + 1 :] if age else []
    held = (sum(part.items for _, part in parts[label] if part) for label in older)
    return layout.grown(labels[age], labels, max(held, default=0))


class Shard:
    """The live parts of one shard; new items go into the slice of age ``age``, 0 is the current one."""

    def __init__(self, store: Store, current: View, number: int, age: int) -> None:
        self.number: int = number
        self.age: int = age
        layout, labels = current.layout(number), current.labels
        #: For each slice, newest first: the number of parts of it and all newer slices.
        self._ends = [*accumulate(len(layout.parts(of)) for of in labels)]
        label, first = labels[age], self._ends[age - 1] if age else 0
        by_label = {of: parts_of(store, current, of, number) for of in labels}
        #: Return the layout to store when the newest part is full.
        self.grown: Callable[[], str] = partial(_grown, layout, age, by_label)
        newest_first = [part for of in labels for part in reversed(by_label[of])]
        self._all = [newest_first.pop(first), *newest_first]
        #: The part that new items go into: its size, its name, and the part itself, if it exists.
        size, newest = self._all[0]
        self.size: PartSize = size
        self.newest: Part | None = newest
        self.key: str = key_of(label, number, self._ends[age] - first - 1)
        #: False: the current slice needs a layout before items can be added.
        self.begun: bool = layout.sized_after(labels[0], labels) is None
        self._groups: dict[int, list[Group]] = {}

    def place_of(self, digest: bytes, within: int) -> Place | None:
        """Return the place of a new item in the newest part, or None if a part of the newest ``within`` slices has the item."""
        new, hash = None, mmh3_32_uintdigest(digest)
        for group in self._groups.get(within) or self._group(within):
            blocks, step, digests, bits_by_column, parts = group
            # As hasher.packed has it, behind the header.
            start = HEADER_BYTES + (hash * blocks >> 32) * step
            place = start, [*map(getitem, bits_by_column, columns_of(digest, digests))]
            new = new or place
            for part in parts:
                if part.has(place):
                    return None
        return new

    def _group(self, within: int) -> list[Group]:
        """Return the parts of the newest ``within`` slices by blocks and hashes; those of the newest part come first."""
        parts_by_size: dict[tuple[int, int], list[Part]] = {}
        for size, part in self._all[: self._ends[within - 1]]:
            parts = parts_by_size.setdefault((size.blocks, size.hashes), [])
            if part is not None:
                parts.append(part)
        groups = [
            Group(blocks, block_step(n) * ROW_BYTES, digests_for(n), _bits_by_column(n), parts)
            for (blocks, n), parts in parts_by_size.items()
        ]
        self._groups[within] = groups  # whole: an interrupt may come at any line
        return groups

"""The parts of one shard's live slices, where they are in memory now, and probes for items in them.

The two kinds of probes answer alike: with numpy, for all items together; without it, item by item.
"""

from __future__ import annotations

from functools import lru_cache
from operator import getitem
from typing import TYPE_CHECKING, NamedTuple

from mmh3 import mmh3_32_uintdigest

from tbloom.bloom.hasher import columns_of, digests_for
from tbloom.bloom.script_calls import SliceCalls
from tbloom.bloom.sizing import COLUMNS, HEADER_BITS, key_bytes
from tbloom.errors import TBloomError
from tbloom.local.memory import Store

if TYPE_CHECKING:
    from tbloom.bloom.layout import Part as Size


#: The bytes before a part's first block: the count, in the machine's own byte order.
HEADER = HEADER_BITS // 8
#: The bytes of a row.
ROW = COLUMNS // 8
#: An item's bits in its block: the byte, and the bit's value in it.
Bits = list[tuple[int, int]]
#: Where an item's block begins in a part, and its bits there.
Place = tuple[int, Bits]


@lru_cache(maxsize=64)
def _bits_by_column(hashes: int) -> list[Bits]:
    """For each row, the bits of its columns. (To look them up takes a third of the time to compute them.)"""
    return [
        [(row * ROW + (column >> 3), 128 >> (column & 7)) for column in range(COLUMNS)]
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
        self.expires = expires
        #: All its bytes.
        self.buffer = buffer
        #: The number of items added, as its only element.
        self.count = buffer[:HEADER].cast("Q")

    @property
    def items(self) -> int:
        """The number of items added."""
        return self.count[0]

    def set(self, start: int, bits: Bits) -> None:
        """Sets these bits in the block that begins at ``start``."""
        block = self.buffer[start:]
        for place, bit in bits:
            block[place] |= bit

    def bits(self) -> int:
        """The bits as a number."""
        return int.from_bytes(self.buffer[HEADER:], "little")


class Group(NamedTuple):
    """Parts of one size."""

    blocks: int
    hashes: int
    #: The bytes of a block.
    block_bytes: int
    #: The digests whose bytes are an item's columns.
    digests: int
    by_column: list[Bits]
    buffers: list[memoryview]


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


def parts_of(
    store: Store, current: SliceCalls, label: str, shard: int
) -> list[tuple[Size, Part | None]]:
    """The parts of a live slice, oldest first; None for one that has not begun."""
    is_stored = store.contents.stored == current.config.stored
    return [
        (size, part_of(store, key_of(label, shard, number), size) if is_stored else None)
        for number, size in enumerate(current.layout(shard).parts(label))
    ]


def _damaged(why: str) -> TBloomError:
    return TBloomError(f"{why}: what keeps the filter is damaged; clear() it")


class Shard:
    """The live parts of one shard; new items go into the slice of age ``age``, 0 is the current one."""

    __slots__ = ("_all", "_ends", "_groups", "age", "begun", "current", "grown", "key", "size")

    def __init__(self, store: Store, current: SliceCalls, number: int, age: int) -> None:
        calls = current.shard(number)
        self.age, self._ends = age, calls.slice_ends
        labels = current.labels
        label, first = labels[age], self._ends[age - 1] if age else 0
        #: The layout once the current part is full.
        self.grown = calls.layout.grown(label, labels) if current.config.grow else ""
        newest_first = [
            part for of in labels for part in reversed(parts_of(store, current, of, number))
        ]
        self._all = [newest_first.pop(first), *newest_first]
        #: The part that new items go into: its size, its name, and the part itself once it has begun.
        self.size, self.current = self._all[0]
        self.key = key_of(label, number, self._ends[age] - first - 1)
        #: False: the current slice needs a layout before items can be added.
        self.begun = calls.begins_after is None
        self._groups: dict[int, list[Group]] = {}

    def groups(self, within: int) -> list[Group]:
        """The parts of the newest ``within`` slices, by size; the current part's size comes first."""
        groups = self._groups.get(within)
        if groups is None:
            sizes: dict[tuple[int, int], Group] = {}
            for size, part in self._all[: self._ends[within - 1]]:
                hashes = size.hashes
                columns = digests_for(hashes), _bits_by_column(hashes)
                new = Group(size.blocks, hashes, hashes * ROW, *columns, [])
                group = sizes.setdefault(size[1:], new)
                if part is not None:
                    group.buffers.append(part.buffer)
            groups = self._groups[within] = list(sizes.values())
        return groups

    def probe(self, digest: bytes, within: int) -> Place | None:
        """The place of a new item in the current part; None: a part of the newest ``within`` slices has it."""
        place, hash = None, mmh3_32_uintdigest(digest)
        groups = self._groups.get(within) or self.groups(within)
        for blocks, _, block_bytes, digests, by_column, buffers in groups:
            start = HEADER + (hash * blocks >> 32) * block_bytes  # hasher.block_starts
            columns = digest if digests == 1 else columns_of(digest, digests)
            bits = [*map(getitem, by_column, columns)]
            place = place or (start, bits)
            first, one = bits[0]
            first += start
            for buffer in buffers:
                # Most items that a part does not hold show it in the first row.
                if buffer[first] & one:
                    block = buffer[start:]
                    for at, bit in bits:
                        if not block[at] & bit:
                            break
                    else:
                        return None
        return place

    def add(self, digest: bytes, within: int) -> bool | None:
        """Adds the item; True: it is new. None: nothing is done, because more than bits must change."""
        place, current = self.probe(digest, within), self.current
        if place is None:
            return False
        if current is None or (items := current.count[0] + 1) >= self.size.capacity:
            return None
        current.count[0] = items
        current.set(*place)
        return True


class PlainProbes:
    """Probes for some items in a shard, before any of them is added: item by item."""

    def __init__(self, shard: Shard, digests: list[bytes], within: int) -> None:
        places = [shard.probe(digest, within) for digest in digests]
        #: The places of the new items, in order.
        self.new = [i for i, place in enumerate(places) if place]
        self._places = list(filter(None, places))

    def add(self, count: int, current: Part) -> None:
        """Sets the bits of the first ``count`` new items."""
        for place in self._places[:count]:
            current.set(*place)

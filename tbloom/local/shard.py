"""The parts of one shard's live slices, where they are in memory now, and looks at items in them.

The two kinds of looks answer alike: with numpy, for all items together; without it, item by item.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from tbloom.bloom.hasher import block_of, columns_of, digests_for
from tbloom.bloom.script_calls import SliceCalls
from tbloom.bloom.sizing import COLUMNS, key_bytes
from tbloom.errors import TBloomError
from tbloom.local.memory import Store
from tbloom.local.parts import HEADER, Part

if TYPE_CHECKING:
    from tbloom.bloom.layout import Part as Size


#: The bytes of a row.
ROW = COLUMNS // 8
#: By column, its byte in the row, and its bit there.
BYTES = bytes(column >> 3 for column in range(COLUMNS))
BITS = bytes(128 >> (column & 7) for column in range(COLUMNS))


class Group(NamedTuple):
    """Parts of one size."""

    blocks: int
    #: The bytes of a block.
    size: int
    buffers: list[memoryview]

    def block(self, digest: bytes) -> range:
        """Where the rows of the item's block begin."""
        start = HEADER + block_of(digest, self.blocks) * self.size
        return range(start, start + self.size, ROW)


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

    __slots__ = ("_all", "_digests", "_ends", "_groups", "begun", "current", "grown", "key", "size")

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
        #: False: the current slice needs a layout before items can be added.
        self.begun = current.must_begin_after(number) is None
        self._digests = digests_for(max(size.hashes for size, _ in self._all))
        self._groups: dict[int, list[Group]] = {}

    def groups(self, within: int) -> list[Group]:
        """The parts of the newest ``within`` slices, by size; the current part's size comes first."""
        groups = self._groups.get(within)
        if groups is None:
            sizes: dict[tuple[int, int], Group] = {}
            for size, part in self._all[: self._ends[within - 1]]:
                group = sizes.setdefault(size[1:], Group(size.blocks, ROW * size.hashes, []))
                if part is not None:
                    group.buffers.append(part.buffer)
            groups = self._groups[within] = list(sizes.values())
        return groups

    def columns(self, digest: bytes) -> bytes:
        """The item's columns, for the part with most rows."""
        return digest if self._digests == 1 else columns_of(digest, self._digests)

    def holds(self, digest: bytes, within: int) -> bool:
        """True: a part of the newest ``within`` slices has the item."""
        columns = self.columns(digest)
        places, bits = columns.translate(BYTES), columns.translate(BITS)
        place, bit = places[0], bits[0]
        for group in self.groups(within):
            rows = group.block(digest)
            first = rows.start + place
            for buffer in group.buffers:
                # Most items that a part does not hold show it in the first row.
                if buffer[first] & bit:
                    for at, own, one in zip(rows, places, bits):  # noqa: B905 - columns are left over
                        if not buffer[at + own] & one:
                            break
                    else:
                        return True
        return False

    def add(self, digest: bytes, within: int) -> bool | None:
        """Adds the item; True: it is new. None: nothing is done, because more than bits must change."""
        if self.holds(digest, within):
            return False
        current = self.current
        if current is None or current.items + 1 >= self.size.capacity:
            return None
        current.raise_count(1)
        self.set_bits(current, digest)
        return True

    def set_bits(self, current: Part, digest: bytes) -> None:
        """Sets the item's bits in the current part."""
        columns, buffer = self.columns(digest), current.buffer
        rows = self.groups(1)[0].block(digest)
        for at, place, bit in zip(rows, columns.translate(BYTES), columns.translate(BITS)):  # noqa: B905 - as above
            buffer[at + place] |= bit


class Look(Protocol):
    """A look at some items in a shard, before any of them is added."""

    #: The places of the new items, in order.
    new: list[int]

    def add(self, count: int, current: Part) -> None:
        """Sets the bits of the first ``count`` new items."""


class PlainLook:
    """A look, item by item."""

    def __init__(self, shard: Shard, digests: list[bytes], within: int) -> None:
        self._shard, self._digests = shard, digests
        holds = shard.holds
        self.new = [i for i, digest in enumerate(digests) if not holds(digest, within)]

    def add(self, count: int, current: Part) -> None:
        """Sets the bits of the first ``count`` new items."""
        for place in self.new[:count]:
            self._shard.set_bits(current, self._digests[place])

"""The layout: the parts of each slice. A full slice grows by another part.

A slice begins with one part. The *default part* has room for the filter's capacity; new items go into the newest part. When that
is full, the slice grows by another part: twice as large as the one before if the slice began with the default part, which may be
a poor guess; otherwise an eighth of the first part, then a quarter, a half, and so on. A slice that is not the current one gets
new items by ``keep``, as the older ones did before it: its part is large enough for as many as the fullest of them holds, and a quarter more.

Once a slice has grown, the slices after it have entries in the layout, and begin with room for as many items as the last slice
held, but at least for the capacity. In a filter without a capacity every slice has an entry, and may also begin smaller.

The layout is stored as text. It has an entry for each slice that has other parts than the default one:
``1557273600000000.1557277200123456;20190508=1000:28672:14,2000:61440:16`` (capacity:bits:hashes). Sizes are stored so that
clients need not compute other clients' sizes. The text begins with the layout's version: the generation, which is the time of the
filter's first use since the last ``clear()`` (us), and the time of the layout's last change (us), if it has changed. A call has
the version that its client knows. A client computes the next entries; ``lua/bloom/set_layout.lua`` stores them under the next
version.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from tbloom.bloom import sizing
from tbloom.bloom.config import MAX_SHARD_BITS, Config
from tbloom.errors import TBloomError

_ENTRY = re.compile(
    r"(\w{1,32})=(\d{1,16}:\d{1,10}:\d{1,2}(?:,\d{1,16}:\d{1,10}:\d{1,2})*)", re.ASCII
)
_VERSION = re.compile(r"(\d{16})(\.\d{16})?(?=;|$)", re.ASCII)
# The limits of a stored layout. A slice whose parts double has far fewer parts; the text has room for 1024 such slices.
_MAX_PARTS, _MAX_TEXT = 1024, 1 << 20


class Part(NamedTuple):
    """One key of a slice, in one shard."""

    capacity: int
    bits: int
    hashes: int

    @property
    def blocks(self) -> int:
        """The number of its blocks."""
        return sizing.blocks_in(self.bits, self.hashes)

    def __str__(self) -> str:
        return f"{self.capacity}:{self.bits}:{self.hashes}"


class Layout:
    """The parts of a shard's slices.

    ``version`` begins with the ``generation``; both are empty if the text has no version. ``entries`` is the rest of the text.
    ``full`` is the label of a slice whose newest part is known to be full.
    """

    __slots__ = ("_config", "_default", "_slices", "entries", "full", "generation", "version")

    def __init__(self, config: Config, text: str = "", shard: int = 0) -> None:
        self._config = config
        head = _VERSION.match(text)
        self.version: str = head[0] if head else ""
        self.generation: str = head[1] if head else ""
        self.entries: str = text.removeprefix(self.version).removeprefix(";" if head else "")
        self.full: str | None = None
        self._slices = _read(config, self.entries, shard)
        #: The part of a slice that has no entry: it is made for the capacity.
        self._default = Part(config.shard_capacity, config.shard_bits, config.hashes)

    def parts(self, label: str) -> list[Part]:
        """Return the parts of a slice, oldest first."""
        return self._slices.get(label) or [self._default]

    def grown(self, label: str, live: list[str], expected: int = 0) -> str:
        """Return the entries with another part for a slice, and without the slices that have left the window.

        With the part, the slice has room for the ``expected`` number of items at least.

        Later live slices get entries, too, so that all clients know from the layout alone which slices still need an entry.
        (There are later slices if this slice is not the current one, or if the server's clock was set back.)
        """
        return self.with_parts(
            {label: [*self.parts(label), self._next_part(label, expected)]}, live
        )

    def sized_after(self, label: str, live: list[str]) -> str | None:
        """Return the slice whose items decide the size of this one, or None if this one has an entry or needs none.

        Without a capacity, a slice that follows no other one is sized after itself.

        Once a slice has an entry, every later slice gets one, so all clients know from the layout alone which slices still
        need an entry.
        """
        needs_one = self._config.capacity is None  # the first slice needs an entry too
        if label in self._slices or not (self._slices or needs_one):
            return None
        among = {*live}
        last = label if needs_one else None
        for other in sorted(self._slices):
            if other < label and other in among:
                last = other
        return last

    def first_entries(self, label: str) -> str:
        """Return the entries of a new filter. Without a capacity, its first slice has one."""
        return f"{label}={self._default}" if self._config.capacity is None else ""

    def beginning(self, items: int) -> Part:
        """Return the first part of a slice after one with this number of items (see the top of this module)."""
        config = self._config
        is_enough = config.capacity is not None and items <= self._default.capacity
        if not items or is_enough or not config.grow:
            return self._default
        return self._sized(sizing.capacity_after(items), 0)

    def with_parts(self, changed: dict[str, list[Part]], live: list[str]) -> str:
        """Return the entries after these slices have changed.

        All later live slices get entries. Slices that have left the window lose theirs.
        """
        first = min(changed)
        later = {label: self.parts(label) for label in live if label > first}
        return self._text({**self._slices, **later, **changed}, live)

    def entries_of(self, labels: Iterable[str]) -> str:
        """Return the entries with one for each of these slices, so that clients with other parameters know its parts."""
        slices = {label: self.parts(label) for label in labels}
        return self._text(slices, [*slices])

    def _next_part(self, label: str, expected: int) -> Part:
        parts = self.parts(label)
        first, number = parts[0], len(parts)
        if first == self._default:
            usual = 2 * parts[-1].capacity
        else:
            usual = -(-first.capacity // 8) << (number - 1)
        # A quarter more, because the fullest slice may get further items in its last period.
        asked = sizing.capacity_after(expected + expected // 4) if expected else 0
        lacking = asked - sum(part.capacity for part in parts)
        return self._sized(max(usual, lacking), number)

    def _sized(self, capacity: int, number: int) -> Part:
        """Return the ``number``-th part of a slice, with this capacity. It is smaller if a key would be too large."""
        config = self._config
        rate = sizing.slice_rate(config.error_rate, config.slices) * sizing.part_share(number)
        bits, hashes = sizing.choose(capacity, rate)
        if bits > sizing.USUAL_BITS_PER_KEY:
            blocks = sizing.blocks_in(sizing.USUAL_BITS_PER_KEY, hashes)
            bits = sizing.bits_of(blocks, hashes)
            capacity = sizing.items_at(rate, bits, hashes)
        return Part(capacity, bits, hashes)

    def _text(self, slices: dict[str, list[Part]], live: list[str]) -> str:
        oldest = min(live)
        return ";".join(
            f"{label}=" + ",".join(map(str, parts))
            for label, parts in sorted(slices.items())
            if label >= oldest
        )


def damaged(config: Config, text: str, shard: int) -> TBloomError:
    """Return the error for a stored text that is not a layout of tbloom's."""
    return TBloomError(
        f"filter {config.name!r}: the field 'layout' of {config.keys.state(shard)!r} holds {text[:100]!r}, which is not "
        "tbloom's; delete it, and clear() the filter if it had grown"
    )


def _read(config: Config, text: str, shard: int) -> dict[str, list[Part]]:
    """Return the slices of a stored layout. Raise TBloomError if it can't be tbloom's.

    Another program may have written it. A part of 10^9 hashes, for example, would take 8 GB of this process's memory.
    """
    if not text:
        return {}
    slices: dict[str, list[Part]] = {}
    for entry in text.split(";") if len(text) <= _MAX_TEXT else [""]:
        match = _ENTRY.fullmatch(entry)
        texts = match[2].split(",") if match else []
        if not match or len(texts) > _MAX_PARTS:
            raise damaged(config, text, shard)
        slices[match[1]] = parts = []
        for numbers in texts:
            capacity, bits, hashes = map(int, numbers.split(":"))
            is_sized = 1 <= bits <= MAX_SHARD_BITS and 1 <= hashes <= sizing.MAX_HASHES
            if not capacity or not is_sized or bits != sizing.whole_blocks(bits, hashes):
                raise damaged(config, text, shard)
            parts.append(Part(capacity, bits, hashes))
    return slices

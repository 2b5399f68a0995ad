"""The layout: the parts of each slice. A slice that fills up grows by a part.

A slice begins with one part, sized by the filter's parameters. When that holds its capacity, the
slice gets a further part of twice the capacity, and so on; new items go into the newest part. A
slice after one that grew begins with a part as large as that slice needed.

In a filter without a capacity, every slice has an entry, and begins with a part for as many items as the last slice
held. It grows by an eighth of that, a quarter, a half, and so on. The first slice follows none, and grows by parts of four
times the capacity.

The layout is stored as text, and names only the slices that have other parts than the usual one:
``1557273600000000.1557277200123456;20190508=1000:28672:14,2000:61440:16`` (capacity:bits:hashes).
Sizes are stored, so that a client need not derive other clients' sizes. The text begins with the layout's version: the
generation (when the filter was first used since the last ``clear()``, us), and when the layout changed last (us), if it did.
A call names the version that its client knows. A client computes the next entries; ``lua/bloom/set_layout.lua`` stores them,
and makes the next version.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from tbloom.bloom import sizing
from tbloom.bloom.config import MAX_SHARD_BITS, Config
from tbloom.errors import TBloomError

_ENTRY = re.compile(
    r"(\w{1,32})=(\d{1,16}:\d{1,10}:\d{1,2}(?:,\d{1,16}:\d{1,10}:\d{1,2})*)", re.ASCII
)
_VERSION = re.compile(r"(\d{16})(\.\d{16})?(?=;|$)", re.ASCII)
# Far more parts than a slice whose parts double can have, and room for 1024 such slices.
MAX_PARTS, _MAX_TEXT = 1024, 1 << 20


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

    ``version``, and the ``generation`` in it, are empty if the text has none. ``entries`` is the text after the version.
    """

    __slots__ = ("_config", "_slices", "_usual", "entries", "generation", "version")

    def __init__(self, config: Config, text: str = "", shard: int = 0) -> None:
        self._config = config
        head = _VERSION.match(text)
        self.version: str = head[0] if head else ""
        self.generation: str = head[1] if head else ""
        self.entries: str = text.removeprefix(self.version).removeprefix(";" if head else "")
        self._slices = _read(config, self.entries, shard)
        #: The part of a slice that has no entry.
        self._usual = Part(config.shard_capacity, config.shard_bits, config.hashes)

    def parts(self, label: str) -> list[Part]:
        """Return the parts of a slice, oldest first."""
        return self._slices.get(label) or [self._usual]

    def grown(self, label: str, live: list[str], in_hand: int = 0) -> str:
        """Return the entries with one more part for a slice, and without slices that have left.

        The part has room for at least ``in_hand`` items. Later live slices with the usual part get entries too, so that all
        clients know from the layout alone which slice still needs its entry. (There are later slices if this one is not
        the current one, or after the server's clock was set back.)
        """
        return self.with_parts({label: [*self.parts(label), self._next_part(label, in_hand)]}, live)

    def newest_before(self, label: str, live: list[str]) -> str | None:
        """Return the slice whose size decides how this one begins; None if this one has an entry or needs none.

        Once a slice has an entry, every later slice gets one. So all clients know from the layout alone
        that a slice which begins still needs its entry.
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

    def first_entries(self, label: str, in_hand: int) -> str:
        """Return the entries of a filter that begins.

        Without a capacity, its first slice gets an entry with the usual part, unless more items are in hand.
        """
        usual = self._usual
        is_usual = self._config.capacity is None and in_hand <= usual.capacity
        return f"{label}={usual}" if is_usual else ""

    def beginning(self, items: int, in_hand: int = 0) -> Part:
        """Return the first part of a slice.

        It has room for ``items``, the number that the last slice held, or for ``in_hand``, if that is more than the usual
        capacity. It is the usual part if both are 0, or if slices may not grow.
        """
        usual = self._usual.capacity
        items = max(items, in_hand if in_hand > usual else 0)
        if self._config.capacity is None and items:
            return self._sized(sizing.capacity_after(items), 0)
        return self._part(self._level(items) if self._config.grow else 0, 0)

    def with_parts(self, changed: dict[str, list[Part]], live: list[str]) -> str:
        """Return the entries with these slices changed, entries for all later slices, and none for slices that have left."""
        first = min(changed)
        later = {label: self.parts(label) for label in live if label > first}
        return self._text({**self._slices, **later, **changed}, live)

    def reconfigured(self, new: Layout, begun: list[str], current: str) -> str:
        """Return the entries under the parameters of ``new``, with the slices as they are.

        Of the slices that have begun, the current one, and any later ones, get a part of the new size.
        """
        slices = {label: self.parts(label) for label in begun}
        for label, parts in slices.items():
            if label >= current:
                slices[label] = [*parts, new._part(-len(parts), len(parts))]
        return self._text(slices, begun)

    def _next_part(self, label: str, in_hand: int = 0) -> Part:
        parts, usual = self.parts(label), self._usual
        number = len(parts)
        if self._config.capacity is None:
            if parts[0] == usual:
                capacity = 4 * parts[-1].capacity
            else:
                capacity = -(-parts[0].capacity // 8) << (number - 1)
            return self._sized(
                sizing.capacity_after(in_hand) if in_hand > capacity else capacity, number
            )
        doubled = (parts[-1].capacity // usual.capacity).bit_length()
        return self._part(max(doubled, self._level(in_hand)) - number, number)

    def _level(self, items: int) -> int:
        """Return the least level at which 2**level times the usual capacity has room for these items."""
        return (max(1, -(-items // self._usual.capacity)) - 1).bit_length()

    def _part(self, level: int, number: int) -> Part:
        """Return the ``number``-th part of a slice that began at 2**level times the usual capacity."""
        config = self._config
        if level == number == 0:
            return self._usual
        return self._sized(config.shard_capacity << (level + number), number)

    def _sized(self, capacity: int, number: int) -> Part:
        """Return the ``number``-th part of a slice, with this capacity, or as much as a key may have."""
        config = self._config
        rate = sizing.slice_rate(config.error_rate, config.slices) * sizing.part_share(number)
        bits, hashes = sizing.choose(capacity, rate)
        if bits > sizing.USUAL_BITS_PER_KEY:
            bits = sizing.whole_blocks(sizing.USUAL_BITS_PER_KEY, hashes)
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

    Another program may have written it, and a part of 10^9 hashes would take 8 GB here.
    """
    if not text:
        return {}
    slices: dict[str, list[Part]] = {}
    for entry in text.split(";") if len(text) <= _MAX_TEXT else [""]:
        match = _ENTRY.fullmatch(entry)
        texts = match[2].split(",") if match else []
        if not match or len(texts) > MAX_PARTS:
            raise damaged(config, text, shard)
        slices[match[1]] = parts = []
        for numbers in texts:
            capacity, bits, hashes = map(int, numbers.split(":"))
            is_sized = 1 <= bits <= MAX_SHARD_BITS and 1 <= hashes <= sizing.MAX_HASHES
            if not capacity or not is_sized or bits != sizing.whole_blocks(bits, hashes):
                raise damaged(config, text, shard)
            parts.append(Part(capacity, bits, hashes))
    return slices

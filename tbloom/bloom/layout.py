"""The layout: the parts of each slice. A slice that fills up grows by a part.

A slice begins with one part, sized by the filter's parameters. When that holds its capacity, the
slice gets a further part of twice the capacity, and so on; new items go into the newest part. A
slice that follows one that grew begins with a part as large as that one needed.

Of a filter without a capacity, each slice has an entry, and begins with a part for as many items as the last one
held. It grows by an eighth of that, a quarter, a half, and so on; the first slice, which follows none, by parts of four
times the capacity.

The layout is stored as text, and names only the slices that have other parts than the usual one:
``1557273600000000.1557277200123456;20190508=1000:28672:14,2000:61440:16`` (capacity:bits:hashes).
Sizes are stored, so that a client need not derive those of others. It begins with its version: the filter's
generation, when this was first used since the last ``clear()`` (us), and when the layout changed last (us), if it has. A
call names the version that its client knows. A client computes the next entries; ``lua/bloom/set_layout.lua`` stores them, and
makes the next version.
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
# Far more than a slice whose parts double can have, and 1024 such slices.
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
    """The parts of a shard's slices; ``version``, and the ``generation`` in it: empty if the text has none; ``entries``:
    the text after it."""

    __slots__ = ("_config", "_slices", "entries", "generation", "version")

    def __init__(self, config: Config, text: str = "", shard: int = 0) -> None:
        self._config = config
        head = _VERSION.match(text)
        self.version: str = head[0] if head else ""
        self.generation: str = head[1] if head else ""
        self.entries: str = text.removeprefix(self.version).removeprefix(";" if head else "")
        self._slices = _read(config, self.entries, shard)

    def parts(self, label: str) -> list[Part]:
        """The parts of a slice, oldest first."""
        return self._slices.get(label) or [self._part(0, 0)]

    def grown(self, label: str, live: list[str], in_hand: int = 0) -> str:
        """The entries with one more part for a slice, which has room for so many items at least, and without slices that have
        left.

        Live slices that are later than this one (there are some if it is not the current one, or after the server's clock was
        set back), and have the usual part, get entries too: so all clients know from the layout alone which slice still needs
        its entry.
        """
        return self.with_parts({label: [*self.parts(label), self._next_part(label, in_hand)]}, live)

    def newest_before(self, label: str, live: list[str]) -> str | None:
        """The slice whose size decides how this one begins; None: this one has an entry or needs none.

        Once a slice has an entry, so has every later one. So all clients know from the layout alone
        that a slice which begins still needs its entry.
        """
        needs_one = self._config.capacity is None  # an entry, also if it is the first one
        if label in self._slices or not (self._slices or needs_one):
            return None
        among = {*live}
        last = (other for other in self._slices if other < label and other in among)
        return max(last, default=label if needs_one else None)

    def first_entries(self, label: str, in_hand: int) -> str:
        """Return the entries with which a filter begins. Without a capacity, its first slice has the usual part, unless more
        items are in hand."""
        usual = self._part(0, 0)
        is_usual = self._config.capacity is None and in_hand <= usual.capacity
        return f"{label}={usual}" if is_usual else ""

    def beginning(self, items: int, in_hand: int = 0) -> Part:
        """The part of a slice that begins with room for ``items``, which the last one held, and for those in hand at least; 0:
        as usual."""
        usual = self._part(0, 0).capacity
        items = max(items, in_hand if in_hand > usual else 0)
        if self._config.capacity is None and items:
            return self._sized(sizing.capacity_after(items), 0)
        return self._part(self._level(items) if self._config.grow else 0, 0)

    def with_parts(self, changed: dict[str, list[Part]], live: list[str]) -> str:
        """The entries with these slices, entries for all later ones, and none of slices that have left."""
        first = min(changed)
        later = {label: self.parts(label) for label in live if label > first}
        return self._text({**self._slices, **later, **changed}, live)

    def reconfigured(self, new: Layout, live: list[str]) -> str:
        """The entries under other parameters, those of ``new``, with the slices as they are.

        ``live`` is oldest first; its last slice, the current one, gets a part of the new size.
        """
        slices = {label: self.parts(label) for label in live}
        current = slices[live[-1]]
        slices[live[-1]] = [*current, new._part(-len(current), len(current))]
        return self._text(slices, live)

    def _next_part(self, label: str, in_hand: int = 0) -> Part:
        parts, usual = self.parts(label), self._part(0, 0)
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
        """The least power of two of the usual capacity that has room for these items."""
        return (max(1, -(-items // self._part(0, 0).capacity)) - 1).bit_length()

    def _part(self, level: int, number: int) -> Part:
        """The ``number``-th part of a slice that began at 2**level times the usual capacity."""
        config = self._config
        if level == number == 0:
            return Part(config.shard_capacity, config.shard_bits, config.hashes)
        return self._sized(config.shard_capacity << (level + number), number)

    def _sized(self, capacity: int, number: int) -> Part:
        """The ``number``-th part of a slice, with this capacity, or as much as a key may have."""
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
    """The error for a stored text that is not a layout of tbloom's."""
    return TBloomError(
        f"filter {config.name!r}: the field 'layout' of {config.keys.state(shard)!r} holds {text[:100]!r}, which is not "
        "tbloom's; delete it, and clear() the filter if it had grown"
    )


def _read(config: Config, text: str, shard: int) -> dict[str, list[Part]]:
    """The slices of a stored layout, checked: another program may have written it, and a part of 10^9
    hashes would take 8 GB here."""
    if not text:
        return {}
    slices = {}
    for entry in text.split(";") if len(text) <= _MAX_TEXT else [""]:
        match = _ENTRY.fullmatch(entry)
        parts = [Part(*map(int, part.split(":"))) for part in match[2].split(",")] if match else []
        if (
            not match
            or len(parts) > MAX_PARTS
            or not all(
                part.capacity
                and 1 <= part.bits <= MAX_SHARD_BITS
                and 1 <= part.hashes <= sizing.MAX_HASHES
                and part.bits == sizing.whole_blocks(part.bits, part.hashes)
                for part in parts
            )
        ):
            raise damaged(config, text, shard)
        slices[match[1]] = parts
    return slices

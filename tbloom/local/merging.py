"""``merge``: the items of other filters with the same parameters, by OR of their bits."""

from __future__ import annotations

import math
import sys
from typing import NamedTuple

from tbloom.bloom.layout import Layout
from tbloom.bloom.layout import Part as Size
from tbloom.bloom.script_calls import leaves
from tbloom.bloom.sizing import COLUMNS, key_bytes
from tbloom.errors import ConfigMismatch, FilterFull
from tbloom.local.contents import PartEntry
from tbloom.local.parts import HEADER
from tbloom.local.protocol import Protocol
from tbloom.local.shard import key_of, part_of


class _Copy(NamedTuple):
    """A part: its size, the number of its items, and its bits as a number."""

    size: Size
    items: int
    bits: int


#: Parts that have begun, oldest first, by slice and shard.
_Copies = dict[tuple[str, int], list[_Copy]]


def merge(protocol: Protocol, others: list[Protocol]) -> None:
    """Adds all that the others hold in slices that are live now. Raises ConfigMismatch or FilterFull, with nothing changed."""
    with protocol.store.guard, protocol.store.shared:
        protocol.agree()
    found = []
    for other in others:
        with other.store.guard, other.store.shared:
            now = other.agree()
            _check_same(protocol, other)
            found.append(_copies(other, now))
    with protocol.store.guard, protocol.store.exclusive:
        now = protocol.agree()
        for other in others:
            _check_same(protocol, other)
        merged = own = _copies(protocol, now)
        for copies in found:
            merged = {
                place: _joined(protocol, parts, copies.get(place, []))
                for place, parts in merged.items()
            }
        changed = {place: parts for place, parts in merged.items() if parts != own[place]}
        if changed:
            _write(protocol, now, changed)


def _check_same(protocol: Protocol, other: Protocol) -> None:
    """Raises ConfigMismatch where the other filter has other parameters."""
    own, theirs = protocol.config, other.config
    if theirs.stored != own.stored:
        raise ConfigMismatch(theirs.name, own.differences(theirs.stored), theirs.stored)


def _copies(protocol: Protocol, now: int) -> _Copies:
    """What the filter holds; it is locked."""
    copies, store, config = _Copies(), protocol.store, protocol.config
    for shard in range(config.shards):
        layout = Layout(config, protocol.layout(shard, now), shard)
        for slice in config.window.live(now):
            found = copies[slice.label, shard] = []
            for number, size in enumerate(layout.parts(slice.label)):
                part = part_of(store, key_of(slice.label, shard, number), size)
                if part is not None and store.contents.stored == config.stored:
                    bits = int.from_bytes(part.buffer[HEADER:], "little")
                    found.append(_Copy(size, part.items, bits))
    return copies


def _joined(protocol: Protocol, own: list[_Copy], others: list[_Copy]) -> list[_Copy]:
    """The parts of a slice with those of another filter: in the place of one of the same size, where both together fit
    into it, else as further parts."""
    parts, config = [*own], protocol.config
    for other in others:
        for number, part in enumerate(parts):
            if part.size == other.size:
                both = _both(part, other)
                if both.items <= max(part.items, part.size.capacity):
                    parts[number] = both
                    break
        else:
            if parts and not config.grow:
                raise FilterFull(config.name, config.capacity)
            parts.append(other)
    return parts


def _both(one: _Copy, other: _Copy) -> _Copy:
    """The items of two parts of one size. Their number is estimated from the bits: the share that is not set is
    e^(-load / 256)."""
    size, bits = one.size, one.bits | other.bits
    unset = 1 - bits.bit_count() / size.bits
    estimate = math.ceil(-math.log(unset) * COLUMNS * size.blocks) if unset else sys.maxsize
    least, most = max(one.items, other.items), one.items + other.items
    return _Copy(size, max(least, min(most, estimate)), bits)


def _write(protocol: Protocol, now: int, merged: _Copies) -> None:
    """Writes these slices."""
    store, config = protocol.store, protocol.config
    live, contents = config.window.live(now), store.contents.copy(now)
    expires = {slice.label: config.window.expires(slice) for slice in live}
    last = expires[live[-1].label]
    contents.keep(config.stored, leaves(config, last, 0))
    for shard in range(config.shards):
        sizes = {
            label: [copy.size for copy in parts]
            for (label, of), parts in merged.items()
            if of == shard
        }
        for label, own in sizes.items():
            for number, size in enumerate(own):
                entry = PartEntry(leaves(config, expires[label], shard), key_bytes(size.bits))
                contents.parts.setdefault(key_of(label, shard, number), entry)
        layout = Layout(config, protocol.layout(shard, now), shard)
        changed = {label: own for label, own in sizes.items() if own != layout.parts(label)}
        if changed:
            text = layout.with_parts(changed, [slice.label for slice in live])
            contents.keep_layout(shard, text, leaves(config, last, shard))
    # All that can fail is done before the first bit is set.
    store.save(contents)
    for (label, shard), parts in merged.items():
        for number, copy in enumerate(parts):
            part = part_of(store, key_of(label, shard, number), copy.size)
            assert part is not None  # noqa: S101 - it was saved
            part.count[0] = copy.items
            part.buffer[HEADER:] = copy.bits.to_bytes(len(part.buffer) - HEADER, "little")

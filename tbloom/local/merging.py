"""``merge``: add the items of other filters with the same parameters, by OR of their bits."""

from __future__ import annotations

import math
import sys
from typing import NamedTuple

from tbloom.bloom.config import shard_expiry
from tbloom.bloom.layout import MAX_PARTS
from tbloom.bloom.layout import Part as PartSize
from tbloom.errors import ConfigMismatch, FilterFull, TBloomError
from tbloom.local.contents import PartEntry
from tbloom.local.protocol import Protocol
from tbloom.local.shard import HEADER_BYTES, key_of, part_bytes, part_of, parts_of


class _Copy(NamedTuple):
    """A part: its size, the number of its items, and its bits as a number."""

    size: PartSize
    items: int
    bits: int


#: Parts that have begun, oldest first, by slice and shard.
_Copies = dict[tuple[str, int], list[_Copy]]


def merge(protocol: Protocol, others: list[Protocol]) -> None:
    """Add the items of the others' live slices. Raise ConfigMismatch or FilterFull, with nothing changed."""
    found = []
    for other in others:
        with other.store.locked():
            found.append(_copies(other, other.check_parameters_and_now()))
    with protocol.store.locked(is_change=True):
        now, config = protocol.check_parameters_and_now(), protocol.config
        for theirs in [other.config for other in others]:
            if theirs.stored != config.stored:
                differing = config.differences(theirs.stored)
                raise ConfigMismatch(theirs.name, differing, theirs.stored)
        merged = own = _copies(protocol, now)
        for copies in found:
            merged = {
                place: _merged(protocol, parts, copies.get(place, []))
                for place, parts in merged.items()
            }
        changed = {place: parts for place, parts in merged.items() if parts != own[place]}
        if changed:
            _write(protocol, now, changed)


def _copies(protocol: Protocol, now: int) -> _Copies:
    """Return the parts of a locked filter."""
    current = protocol.current(now)
    return {
        (label, shard): [
            _Copy(size, part.items, part.bits())
            for size, part in parts_of(protocol.store, current, label, shard)
            if part is not None
        ]
        for shard in range(protocol.config.shards)
        for label in current.labels
    }


def _merged(protocol: Protocol, own: list[_Copy], others: list[_Copy]) -> list[_Copy]:
    """Return the parts of a slice, merged with those of another filter.

    A part is merged into one of the same size with room for both. If there is none, it becomes a further part.
    """
    parts, config = [*own], protocol.config
    for other in others:
        same_size = [(number, part) for number, part in enumerate(parts) if part.size == other.size]
        unions = [(number, part.items, _union(part, other)) for number, part in same_size]
        fitting = [
            (one.items - items, number, one)
            for number, items, one in unions
            if one.items <= max(items, other.items, one.size.capacity)
        ]
        if fitting:
            # The part that gets the fewest new items, so that filters that merge each other repeatedly don't get ever more parts.
            _, number, parts[number] = min(fitting)
        elif parts and not config.grow:
            raise FilterFull(config.name, config.first_capacity)
        else:
            parts.append(other)
    if len(parts) > MAX_PARTS:
        raise TBloomError(
            f"merge: a slice would have {len(parts)} parts, and may have {MAX_PARTS}; give the filter a larger capacity"
        )
    return parts


def _union(one: _Copy, other: _Copy) -> _Copy:
    """Return the union of two parts of one size.

    The number of items is estimated from the bits: the share that is not set is e^(-items * hashes / bits).
    """
    size, bits = one.size, one.bits | other.bits
    if bits in (one.bits, other.bits):
        return one if bits == one.bits else other
    unset = 1 - bits.bit_count() / size.bits
    estimate = math.ceil(-math.log(unset) * size.bits / size.hashes) if unset else sys.maxsize
    least, most = max(one.items, other.items), one.items + other.items
    return _Copy(size, max(least, min(most, estimate)), bits)


def _write(protocol: Protocol, now: int, merged: _Copies) -> None:
    """Write these slices."""
    store, config, current = protocol.store, protocol.config, protocol.current(now)
    expires = {slice.label: config.window.expires(slice) for slice in current.slices}
    contents = store.contents.copy(now)
    contents.keep(config.stored, current.expires_at(0))
    changed: dict[int, dict[str, list[PartSize]]] = {}
    for (label, shard), parts in merged.items():
        for number, copy in enumerate(parts):
            entry = PartEntry(shard_expiry(config, expires[label], shard), part_bytes(copy.size))
            contents.parts.setdefault(key_of(label, shard, number), entry)
        sizes = [copy.size for copy in parts]
        if sizes != current.layout(shard).parts(label):
            changed.setdefault(shard, {})[label] = sizes
    for shard, slices in changed.items():
        text = current.layout(shard).with_parts(slices, current.labels)
        contents.keep_layout(shard, text, current.expires_at(shard))
    # All that can fail is done before the first bit is set.
    store.save(contents)
    for (label, shard), parts in merged.items():
        for number, copy in enumerate(parts):
            part = part_of(store, key_of(label, shard, number), copy.size)
            assert part is not None  # noqa: S101 - it was saved
            part.count[0] = copy.items
            part.buffer[HEADER_BYTES:] = copy.bits.to_bytes(copy.size.bits // 8, "little")

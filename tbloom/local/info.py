"""``info()`` of a filter without a server."""

from __future__ import annotations

from tbloom.bloom.info import FilterInfo, PartInfo, SliceInfo, filter_info, summed
from tbloom.bloom.view import View
from tbloom.local.protocol import Protocol
from tbloom.local.shard import part_bytes, parts_of
from tbloom.window import ALWAYS, Slice, from_ms


def overview(protocol: Protocol) -> FilterInfo:
    """Return the result of ``info()``."""
    with protocol.store.locked():
        current = protocol.current(protocol.check_parameters_and_now())
        slices = [_slice_info(protocol, current, slice) for slice in reversed(current.slices)]
    return filter_info(protocol.config, slices)


def _slice_info(protocol: Protocol, current: View, slice: Slice) -> SliceInfo:
    config, expires, held = protocol.config, 0, list[PartInfo]()
    for shard in range(config.shards):
        for size, part in parts_of(protocol.store, current, slice.label, shard):
            if part is None:
                held.append(PartInfo(shard, size, 0, 0, 0))
                continue
            expires, taken = max(expires, part.expires), part_bytes(size)
            held.append(PartInfo(shard, size, part.items, taken, part.bits().bit_count()))
    leaves = from_ms(expires, config.window.zone) if 0 < expires < ALWAYS.end else None
    return summed(config, slice, held, leaves)

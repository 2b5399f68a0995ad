"""Where an item's bits are."""

from __future__ import annotations

from tbloom.bloom.hasher import block_starts


def block_of(digest: bytes, blocks: int) -> int:
    """The number of the item's block, 0 .. blocks-1."""
    [block] = block_starts(digest, [(blocks, 1)])
    return block

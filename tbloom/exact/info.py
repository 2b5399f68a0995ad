"""What ``info()`` tells about an exact filter."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ExactInfo:
    """An exact filter, and what it holds."""

    name: str
    shards: int
    #: Items that are remembered.
    items: int
    #: Entries that have expired, and wait to be swept.
    dead: int
    #: The sorted sets that the items may be in; empty ones take no memory.
    buckets: int
    #: Memory in Redis, overhead included.
    bytes: int
    #: See ``TimeBloom.warnings``.
    warnings: tuple[str, ...]

    @property
    def error_rate(self) -> float:
        """The chance that an item never added is called seen: 0, as far as anybody knows of two items with
        the same BLAKE2b."""
        return 0.0

"""The result of ``info()`` of an exact filter."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ExactInfo:
    """The contents of an exact filter."""

    name: str
    shards: int
    #: Remembered items.
    items: int
    #: Expired entries whose memory is not freed yet.
    dead: int
    #: The sorted sets of the items; empty ones take no memory.
    buckets: int
    #: Memory in Redis, overhead included.
    bytes: int
    #: See ``TimeBloom.warnings``.
    warnings: tuple[str, ...]

    @property
    def error_rate(self) -> float:
        """The chance that an item never added is called seen: 0, because no two items with the same BLAKE2b are known."""
        return 0.0

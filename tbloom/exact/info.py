"""The result of ``info()`` of an exact filter."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ExactInfo:
    """The contents of an exact filter."""

    name: str
    shards: int
    #: The number of remembered items.
    items: int
    #: The number of expired entries whose memory is not freed yet.
    dead: int
    #: The number of sorted sets with the items. Empty ones take no memory.
    buckets: int
    #: Memory in Redis, overhead included; None if the server refuses to tell. Of more than 100 buckets, 100 are measured.
    bytes: int | None
    #: See ``TimeBloom.warnings``.
    warnings: tuple[str, ...]
    #: See ``FilterInfo``.
    unsaved_since: float | None = None

    @property
    def error_rate(self) -> float:
        """The chance that an item that was never added is called seen. It is 0: no two items with one BLAKE2b are known."""
        return 0.0

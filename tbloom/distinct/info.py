"""What ``info()`` tells about a distinct counter, and its mapping."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CountedSlice:
    """One slice of a counter; of one without slices, all of it."""

    label: str
    #: Distinct members.
    count: int
    #: Chunks that are kept as sorted ids, and as bitmaps.
    sorted_chunks: int
    bitmap_chunks: int
    #: Memory in Redis, overhead included.
    bytes: int


@dataclass(frozen=True, slots=True)
class CounterInfo:
    """A distinct counter, and the mapping that it shares with others."""

    name: str
    mapping: str
    granularity: str | None
    #: Distinct members of all live slices together.
    count: int
    #: The live slices, oldest first.
    slices: tuple[CountedSlice, ...]
    #: The members that the mapping has given an id to.
    members: int
    #: The mapping's memory in Redis, overhead included; ``buckets``: the hashes that it is spread over.
    mapping_bytes: int
    buckets: int
    #: See ``TimeBloom.warnings``.
    warnings: tuple[str, ...]

    @property
    def bytes(self) -> int:
        """The counter's own memory, without the mapping's."""
        return sum(slice.bytes for slice in self.slices)

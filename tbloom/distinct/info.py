"""The result of ``info()`` of a distinct counter."""

from __future__ import annotations

from dataclasses import dataclass

from tbloom.engine.server import total


@dataclass(frozen=True, slots=True)
class CountedSlice:
    """One slice of a counter; for one without slices, the whole counter."""

    label: str
    #: Distinct members.
    count: int
    #: Chunks of 65,536 ids that are not empty.
    chunks: int
    #: Memory in Redis, overhead included; None if the server refuses to tell.
    bytes: int | None


@dataclass(frozen=True, slots=True)
class CounterInfo:
    """The contents of a distinct counter, and of its mapping."""

    name: str
    mapping: str | None
    granularity: str | None
    #: Distinct members of all live slices together.
    count: int
    #: The live slices, oldest first.
    slices: tuple[CountedSlice, ...]
    #: Members with an id in the mapping.
    members: int
    #: The mapping's memory in Redis, overhead included; None if the server refuses to tell. Of more than 100 buckets, at most
    #: 100 are measured.
    mapping_bytes: int | None
    #: The number of the mapping's hashes.
    buckets: int
    #: See ``TimeBloom.warnings``.
    warnings: tuple[str, ...]

    @property
    def bytes(self) -> int | None:
        """The counter's own memory, without the mapping's; None if the server refuses to tell."""
        return total(slice.bytes for slice in self.slices)

"""What ``info()`` tells about a filter."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from tbloom.bloom import sizing


@dataclass(frozen=True, slots=True)
class SliceInfo:
    """One live slice."""

    label: str
    #: The period, ``end`` excluded, in the filter's time zone.
    start: datetime
    end: datetime
    #: When Redis drops the slice's keys, by their TTL; None while it holds nothing.
    expires: datetime | None
    #: Items added, counted exactly.
    items: int
    #: How many keys it has (in the shard that has most): 1, or more where it grew.
    parts: int
    #: Bits set / bits, 0 to 1.
    fill_ratio: float
    #: Memory in Redis, overhead included.
    bytes: int
    #: The chance that an item never added is found in this slice.
    error_rate: float


@dataclass(frozen=True, slots=True)
class FilterInfo:
    """A filter and its live slices, oldest first."""

    name: str
    granularity: str
    tz: str
    #: Distinct items expected per slice.
    capacity: int
    #: The rate that was asked for, over the whole window.
    promised_error_rate: float
    #: Size of one slice.
    bits: int
    hashes: int
    shards: int
    slices: tuple[SliceInfo, ...]
    #: Items that are claimed, and not committed yet.
    claims: int
    #: See ``TimeBloom.warnings``.
    warnings: tuple[str, ...]

    @property
    def items(self) -> int:
        """Items added in the whole window."""
        return sum(slice.items for slice in self.slices)

    @property
    def bytes(self) -> int:
        """Memory of all slices in Redis."""
        return sum(slice.bytes for slice in self.slices)

    @property
    def error_rate(self) -> float:
        """The chance, as of now, that an item never added is called seen."""
        return sizing.window_rate([slice.error_rate for slice in self.slices])

"""How large a store will be, before it exists. The figures are measured: docs/benchmarks.md, "Pages"."""

from __future__ import annotations

import math
from dataclasses import dataclass

#: How many times shorter a codec makes bodies such as the HTML of Python's documentation.
RATIOS = {"gzip": 5.7, "zstd": 6.8, "identity": 1.0}
#: Bytes of a record without its body, for a page with eight headers.
_HEAD_BYTES = {"gzip": 530, "zstd": 570, "identity": 750}
#: LMDB's pages. A leaf has room for 70 entries, and is full to ln 2 in the mean, as addresses come in no order.
_PAGE_BYTES, _ROOM, _FULL = 4096, 70, math.log(2)
#: Of a page of branches, which name a page each; and pages of an empty index, and of each slice in it.
_BRANCHES, _EMPTY, _EMPTY_SLICE = 157, 24, 1.4
#: Memory of a process that has a store open.
_PROCESS_BYTES = 25 << 20
#: Seconds of one processor: for a record of a rebuild; of ``verify``, and for each byte of its body.
_REBUILD, _VERIFY, _VERIFY_BYTE = 80e-6, 60e-6, 2.7e-9


@dataclass(frozen=True, slots=True)
class PagesPlan:
    """What a store of some pages takes. Bytes of one record or page are means."""

    pages: int
    body_bytes: float
    slices: int
    codec: str
    record_bytes: float
    segment_bytes: float
    index_bytes: int
    #: WARC files.
    segments: int
    #: Memory of each process, besides the index, which all share.
    process_bytes: int
    rebuild_seconds: float
    verify_seconds: float
    copy_seconds: float

    @property
    def bytes(self) -> float:
        """Of the folder."""
        return self.segment_bytes + self.index_bytes


def plan(
    pages: int,
    body_bytes: float,
    *,
    codec: str = "gzip",
    slices: int = 1,
    ratio: float | None = None,
    head_bytes: float | None = None,
    segment_bytes: int = 1 << 30,
    disk: float = 200e6,
    cores: int = 1,
) -> PagesPlan:
    """The store of pages that are spread evenly over its slices; none of them was replaced.

    :param ratio: how many times shorter the codec makes a body.
    :param head_bytes: bytes of a record without its body.
    :param disk: bytes that are read in a second.
    :param cores: processors for ``rebuild`` and ``verify``.
    """
    head = _HEAD_BYTES[codec] if head_bytes is None else head_bytes
    record = head + body_bytes / (RATIOS[codec] if ratio is None else ratio)
    stored = pages * record
    leaves = pages / (_ROOM * _FULL)
    index = _EMPTY + _EMPTY_SLICE * slices + leaves * (1 + 1 / (_BRANCHES * _FULL))
    reading = stored / disk
    return PagesPlan(
        pages,
        body_bytes,
        slices,
        codec,
        record,
        stored,
        math.ceil(index) * _PAGE_BYTES,
        slices * math.ceil(stored / slices / segment_bytes),
        _PROCESS_BYTES,
        max(reading, pages * _REBUILD / cores),
        max(reading, pages * (_VERIFY + body_bytes * _VERIFY_BYTE) / cores),
        reading,
    )

"""``tbloom pages plan``: how large a page store will be. The figures are measured: docs/benchmarks.md, "Pages"."""

from __future__ import annotations

import argparse
import dataclasses
import math
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from tbloom.cli.kit import formats, numbers, output
from tbloom.cli.kit.errors import CommandError
from tbloom.window import MAX_SLICES

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.table import Table

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
_LONGEST = 1000
MAP_BYTES = 1 << 38


@dataclasses.dataclass(frozen=True, slots=True)
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


def add(verb: Callable[..., argparse.ArgumentParser]) -> None:
    """The sub-command, with its arguments."""
    parser = verb(
        "plan",
        "compute how large a store will be",
        "tbloom pages plan --pages 50M --bytes 60KB --slices 30",
        " Nothing is opened. Sizes are within a tenth where bodies are HTML or --ratio is theirs; times may be twice as long.",
        is_bare=True,
    )
    parser.add_argument(
        "--pages", type=numbers.count, metavar="N", default=10**6, help="in all slices (1M)"
    )
    parser.add_argument(
        "--bytes", type=numbers.memory, metavar="SIZE", default=100 << 10, help="of a body (100KB)"
    )
    parser.add_argument("--codec", choices=RATIOS, default="gzip", help="of the records (gzip)")
    parser.add_argument(
        "--ratio",
        type=_ratio,
        metavar="X",
        help="how many times shorter the codec makes a body (that of HTML documentation)",
    )
    parser.add_argument("--slices", type=numbers.count, metavar="N", default=1, help="(1)")
    parser.add_argument(
        "--disk",
        type=numbers.memory,
        metavar="SIZE",
        default=200 << 20,
        help="what the disk reads in a second (200MB)",
    )
    parser.add_argument(
        "--cores", type=numbers.count, metavar="N", help="of the processor (this machine's)"
    )
    parser.add_argument("--json", action="store_true", help="as JSON, in bytes and seconds")


def run(arguments: argparse.Namespace) -> int:
    """Prints the plan."""
    if arguments.slices > MAX_SLICES:
        raise CommandError(f"--slices: expected at most {MAX_SLICES}, got {arguments.slices}")
    found = plan(
        arguments.pages,
        arguments.bytes,
        codec=arguments.codec,
        slices=arguments.slices,
        ratio=arguments.ratio,
        disk=arguments.disk,
        cores=arguments.cores or os.cpu_count() or 1,
    )
    if found.index_bytes > MAP_BYTES:
        limit = formats.size(MAP_BYTES)
        raise CommandError(
            f"--pages: their index would have {formats.size(found.index_bytes)}, more than its limit of {limit}; "
            "expected fewer pages for one store"
        )
    if arguments.json:
        output.print_json(dataclasses.asdict(found))
    else:
        output.console().print(_table(found))
    return 0


def _ratio(text: str) -> float:
    with suppress(ValueError):
        if 1 <= (number := float(text)) <= _LONGEST:
            return number
    raise argparse.ArgumentTypeError(f"expected a number from 1 to {_LONGEST}, got {text!r}")


def _table(plan: PagesPlan) -> Table:
    times, each = plan.body_bytes / plan.record_bytes, plan.index_bytes / plan.pages
    return output.facts(
        ("pages", f"{plan.pages:,}", f"{formats.size(plan.body_bytes)} each"),
        (
            "a page on the disk",
            formats.size(plan.record_bytes),
            f"{times:.1f} times shorter ({plan.codec}), headers included",
        ),
        ("WARC files", formats.size(plan.segment_bytes), f"in {plan.segments:,}, of 1 GB at most"),
        (
            "index",
            formats.size(plan.index_bytes),
            f"{each:.0f} bytes a page; should fit into memory",
        ),
        ("a process", formats.size(plan.process_bytes), "of memory, besides the index"),
        ("rebuild", formats.duration(plan.rebuild_seconds), "also after the machine went down"),
        ("verify", formats.duration(plan.verify_seconds), ""),
        ("copy", formats.duration(plan.copy_seconds), "to read all WARC files"),
    )

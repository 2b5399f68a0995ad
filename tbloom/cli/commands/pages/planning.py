"""``tbloom pages plan``: how large a page store will be."""

from __future__ import annotations

import argparse
import dataclasses
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from tbloom.cli.kit import formats, numbers, output
from tbloom.cli.kit.errors import CommandError
from tbloom.pages import planning
from tbloom.pages.environment import MAP_BYTES
from tbloom.window import MAX_SLICES

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.table import Table

    from tbloom.pages.planning import PagesPlan

_LONGEST = 1000


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
    parser.add_argument(
        "--codec", choices=planning.RATIOS, default="gzip", help="of the records (gzip)"
    )
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
    plan = planning.plan(
        arguments.pages,
        arguments.bytes,
        codec=arguments.codec,
        slices=arguments.slices,
        ratio=arguments.ratio,
        disk=arguments.disk,
        cores=arguments.cores or os.cpu_count() or 1,
    )
    if plan.index_bytes > MAP_BYTES:
        limit = formats.size(MAP_BYTES)
        raise CommandError(
            f"--pages: their index would have {formats.size(plan.index_bytes)}, more than its limit of {limit}; "
            "expected fewer pages for one store"
        )
    if arguments.json:
        output.print_json(dataclasses.asdict(plan))
    else:
        output.console().print(_table(plan))
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

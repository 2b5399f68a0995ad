"""The options for the parameters of a filter."""

from __future__ import annotations

import argparse
from typing import Any

from tbloom.bloom.config import Parameters
from tbloom.cli.kit import numbers
from tbloom.cli.kit.errors import CommandError


def add_arguments(parser: Any) -> None:
    """An option for each parameter."""
    parser.add_argument(
        "--granularity",
        metavar="PERIOD",
        help="length of a slice: h, d, w, m, or 15min, 3d ... (d); none: no window, the filter never forgets",
    )
    parser.add_argument("--slices", type=int, metavar="N", help="number of slices (7)")
    parser.add_argument(
        "--capacity",
        type=numbers.count,
        metavar="ITEMS",
        help="distinct items per slice, such as 5M (1M)",
    )
    parser.add_argument(
        "--error-rate", type=float, metavar="RATE", help="over the whole window (1e-4)"
    )
    parser.add_argument(
        "--bits",
        type=numbers.bits,
        metavar="BITS",
        help="bits per slice, such as 2^30 (by capacity and error rate)",
    )
    parser.add_argument(
        "--hashes", type=int, metavar="N", help="bits that an item sets (by error rate)"
    )
    parser.add_argument("--tz", metavar="ZONE", help="time zone, such as Europe/Berlin (UTC)")
    parser.add_argument(
        "--shards", type=int, metavar="N", help="number of shards, for a cluster (by size)"
    )
    parser.add_argument(
        "--grow",
        action=argparse.BooleanOptionalAction,
        help="a slice that is full grows (yes), or refuses items",
    )


def given(arguments: argparse.Namespace) -> dict[str, Any]:
    """The options that were given, as arguments of ``TimeBloom``."""
    values = {name: getattr(arguments, name) for name in Parameters.__annotations__}
    found = {name: value for name, value in values.items() if value is not None}
    return {**found, "granularity": None} if found.get("granularity") == "none" else found


def new(arguments: argparse.Namespace) -> dict[str, Any] | None:
    """The parameters of a new filter; None without --create."""
    values = given(arguments)
    if values and not arguments.create:
        raise CommandError("--create is missing: parameters are for a new filter only")
    return values if arguments.create else None


def add_creation(parser: argparse.ArgumentParser) -> None:
    """--create, and the parameters of the new filter."""
    group = parser.add_argument_group("a new filter")
    group.add_argument("--create", action="store_true", help="create it, with these parameters:")
    add_arguments(group)

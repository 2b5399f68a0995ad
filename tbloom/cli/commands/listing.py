"""``tbloom list``: the filters on a server."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from redis import ResponseError

from tbloom.cli.kit import filter_info, filters, formats, output
from tbloom.cli.kit.errors import CommandError, print_error
from tbloom.errors import TBloomError
from tbloom.exact import ExactInfo

if TYPE_CHECKING:
    import argparse

    from rich.console import RenderableType

    from tbloom.bloom.info import FilterInfo


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """--url, --json."""
    parser.description = (
        f"{parser.description} Mappings of distinct counters are left out: see 'tbloom count list'."
    )
    filters.add_url(parser)
    parser.add_argument("--json", action="store_true", help="as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Prints a line for each filter. 1: one of them can't be read; stderr has the error."""
    with filters.connect(arguments.url) as client:
        found = [_info(arguments.url, client, name) for name in filters.names(client)]
    return output.print_list(found, _as_dict, _table, json=arguments.json, empty="no filters here")


def _info(url: str, client: Any, name: str) -> FilterInfo | ExactInfo | None:
    """The filter's state; None where it can't be read, after its error on stderr."""
    try:
        if exact := filters.stored_exact(client, name):
            return exact.info()
        return filters.open_stored(url, client, name).info()
    except (TBloomError, CommandError, ResponseError) as error:
        print_error(name, error)
        return None


def _as_dict(info: FilterInfo | ExactInfo) -> dict[str, Any]:
    if isinstance(info, ExactInfo):
        return {"kind": "exact", **dataclasses.asdict(info)}
    return filter_info.as_dict(info)


def _table(found: list[FilterInfo | ExactInfo]) -> RenderableType:
    numbers = ("capacity", "shards", "items", "memory", "error rate")
    table = output.columns("filter", "window", right=numbers)
    for info in found:
        if isinstance(info, ExactInfo):
            window, capacity, rate = "exact", "", "none"
        else:
            window = formats.window(len(info.slices), info.granularity)
            capacity = f"{info.capacity:,}"
            rate = formats.rate(info.error_rate)
        held = f"{info.items:,}", formats.size(info.bytes)
        table.add_row(info.name, window, capacity, f"{info.shards}", *held, rate)
    return output.Fitted(table, "shards", "capacity", "error rate")

"""``tbloom list`` and ``tbloom info``: filters, and one slice by slice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from redis import ResponseError

from tbloom.cli.kit import filter_info, filters, formats, options, output
from tbloom.cli.kit.command import Command
from tbloom.cli.kit.errors import CommandError, print_error
from tbloom.errors import TBloomError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from tbloom.cli.kit.filters import Server


@click.command(cls=Command, example="tbloom list")
@options.url
@options.as_json
def list_filters(url: str, *, as_json: bool) -> int:
    """Shows the filters on a server.

    Mappings of distinct counters are left out: see 'tbloom count list'. Exit code 1: a filter can't be read.
    """
    with filters.connect(url) as server:
        found = [_info(server, name) for name in server.names()]
    return output.show_list(found, _table, as_json=as_json, empty="no filters here")


@click.command(cls=Command, example="tbloom info news")
@options.name
@options.url
@options.all_slices
@options.as_json
def info(name: str, url: str, *, empty: bool, as_json: bool) -> None:
    """Shows a filter, slice by slice.

    An exact filter, which has no slices, is shown too.
    """
    with filters.connect(url) as server:
        found = server.any_filter(name).info()
    output.show(
        filter_info.as_dict(found),
        lambda: filter_info.as_table(found, empty=empty),
        as_json=as_json,
    )


def _info(server: Server, name: str) -> dict[str, Any] | None:
    """The filter's state; None where it can't be read, after its error on stderr."""
    try:
        return filter_info.as_dict(server.any_filter(name).info())
    except (TBloomError, CommandError, ResponseError) as error:
        print_error(name, error)
        return None


def _table(found: list[dict[str, Any]]) -> RenderableType:
    numbers = ("capacity", "shards", "items", "memory", "error rate")
    table = output.columns("filter", "window", right=numbers)
    for info in found:
        window, capacity, rate = "exact", "", "none"
        if "kind" not in info:
            window = formats.window(len(info["slices"]), info["granularity"])
            capacity = f"{info['capacity']:,}" if info["capacity"] else "none"
            rate = formats.rate(info["error_rate"])
        held = f"{info['items']:,}", formats.size(info["bytes"])
        table.add_row(info["name"], window, capacity, f"{info['shards']}", *held, rate)
    return output.Fitted(table, "shards", "capacity", "error rate")

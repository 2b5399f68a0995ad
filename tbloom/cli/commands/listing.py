"""``tbloom list`` and ``tbloom info``: filters, and one slice by slice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tbloom.bloom.info import FilterInfo
from tbloom.cli.kit import filter_info, formats, options, output
from tbloom.cli.kit.command import Command

if TYPE_CHECKING:
    from tbloom.cli.kit.filters import Info, Server


@click.command(cls=Command, example="tbloom list")
@options.server
@options.as_json
def list_filters(server: Server) -> int:
    """Shows the filters on a server.

    Mappings of distinct counters are left out: see 'tbloom count list'. Exit code 1: a filter can't be read.
    """
    found, code = [], 0
    for name, info in server.infos(server.names()):
        if isinstance(info, Exception):
            output.print_error(name, info)
            code = 1
        else:
            found.append(info)
    # Slow for thousands of filters, and only JSON needs it.
    shown = [*map(filter_info.as_dict, found)] if output.is_on("json") else found
    output.show(shown, lambda: _table(found))
    if not found:
        output.say("no filters here")
    elif harmed := [info.name for info in found if info.warnings]:
        output.say(f"Warnings about {', '.join(harmed)}: see 'tbloom info'")
    return code


@click.command(cls=Command, example="tbloom info news")
@options.name
@options.server
@click.option("--all", "empty", is_flag=True, help="show empty slices too")
@options.as_json
def info(name: str, server: Server, *, empty: bool) -> None:
    """Shows a filter, slice by slice.

    An exact filter, which has no slices, is shown too. To see it live: watch -n 5 tbloom info NAME.
    """
    found = server.any_filter(name).info()
    output.show(filter_info.as_dict(found), lambda: filter_info.as_text(found, empty=empty))


def _table(found: list[Info]) -> str:
    rows = []
    for info in found:
        window, capacity, rate = "exact", "", "none"
        if isinstance(info, FilterInfo):
            window = formats.window(len(info.slices), info.granularity)
            capacity = f"{info.capacity:,}" if info.capacity else "none"
            rate = formats.rate(info.error_rate)
        rows.append(
            {
                "filter": info.name,
                "window": window,
                "capacity": capacity,
                "shards": f"{info.shards}",
                "items": f"{info.items:,}",
                "memory": formats.size(info.bytes),
                "error rate": rate,
            }
        )
    return output.table(rows, left=("filter", "window"))

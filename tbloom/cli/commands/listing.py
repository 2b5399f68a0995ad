"""``tbloom list`` and ``tbloom info``: filters, and one slice by slice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tbloom.bloom.info import FilterInfo
from tbloom.cli.kit import filter_info, filters, formats, options, output
from tbloom.cli.kit.command import Command
from tbloom.cli.kit.errors import print_error

if TYPE_CHECKING:
    from tbloom.cli.kit.filters import Info


@click.command(cls=Command, example="tbloom list")
@options.url
@options.as_json
def list_filters(url: str, *, as_json: bool) -> int:
    """Shows the filters on a server.

    Mappings of distinct counters are left out: see 'tbloom count list'. Exit code 1: a filter can't be read.
    """
    with filters.connect(url) as server:
        found = [_readable(*found) for found in server.any_infos(server.names())]
    return output.show_list(
        found, filter_info.as_dict, _table, as_json=as_json, empty="no filters here"
    )


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
        lambda: filter_info.as_text(found, empty=empty),
        as_json=as_json,
    )


def _readable(name: str, info: Info | Exception) -> Info | None:
    """The filter's state; None where it can't be read, after its error on stderr."""
    if isinstance(info, Exception):
        print_error(name, info)
        return None
    return info


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
    less = ("shards", "capacity", "error rate")
    return output.table(rows, left=("filter", "window"), less=less)

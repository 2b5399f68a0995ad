"""``tbloom info``: a filter, slice by slice, with its warnings."""

from __future__ import annotations

import click

from tbloom.cli.kit import filter_info, filters, options, output
from tbloom.cli.kit.command import Command


@click.command(cls=Command, example="tbloom info news")
@options.name
@options.url
@options.all_slices
@options.as_json
def command(name: str, url: str, *, empty: bool, as_json: bool) -> None:
    """Shows a filter, slice by slice.

    An exact filter, which has no slices, is shown too.
    """
    with filters.connect(url) as server:
        info = server.any_filter(name).info()
    output.show(
        filter_info.as_dict(info),
        lambda: filter_info.as_table(info, empty=empty),
        as_json=as_json,
    )

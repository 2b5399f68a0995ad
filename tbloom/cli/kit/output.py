"""Results on standard output: tables for people, JSON for programs."""

from __future__ import annotations

import json
import sys
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


def console() -> Console:
    """Standard output; its lines are not wrapped where it is no terminal."""
    made = Console(highlight=False, markup=False)
    if not made.is_terminal:
        made.width = 10_000
    return made


def line(text: str) -> None:
    """Prints a line, unless the shell has closed standard output (``>&-``)."""
    if sys.stdout is not None:
        sys.stdout.write(f"{text}\n")


def print_json(value: Any) -> None:
    """Prints a value as JSON; times are written as in ISO 8601."""

    def plain(value: Any) -> Any:
        if isinstance(value, datetime):
            return value.isoformat()
        raise TypeError(f"no JSON for {value!r}")

    line(json.dumps(value, indent=2, default=plain, ensure_ascii=False))


def print_list(
    found: list[T | None], as_dict: Callable[[T], Any], as_table: Callable[[list[T]], Table], *,
    json: bool, empty: str,
) -> int:  # fmt: skip
    """Prints a list as JSON or as a table; returns 1 if a part of it could not be read (None), else 0."""
    readable = [one for one in found if one is not None]
    if json:
        print_json([as_dict(one) for one in readable])
    elif readable:
        console().print(as_table(readable))
    elif not found:
        sys.stderr.write(f"{empty}\n")
    return 0 if len(readable) == len(found) else 1


def facts(*rows: tuple[str, str, str]) -> Table:
    """A table with a name, a figure and a remark in each line."""
    table = Table.grid(padding=(0, 2))
    table.add_column()
    table.add_column(justify="right")
    table.add_column(style="dim")
    for row in rows:
        table.add_row(*row)
    return table


def add_footer(table: Table, *cells: str) -> None:
    """Puts totals below the columns."""
    table.show_footer = True
    for column, cell in zip(table.columns, cells, strict=True):
        column.footer = cell


def columns(*left: str, right: tuple[str, ...] = ()) -> Table:
    """An empty table with these headings: the columns on the left are text, those on the right numbers."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in left:
        table.add_column(heading)
    for heading in right:
        table.add_column(heading, justify="right")
    return table

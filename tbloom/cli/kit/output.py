"""Results on standard output: tables for people, JSON for programs."""

from __future__ import annotations

import io
import json
import sys
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

import rich.console
from rich.table import Table

from tbloom.cli.kit.formats import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.text import Text

#: Wider than any table.
_WIDE = 10_000


class Console(rich.console.Console):
    """A console that shows each str as it is, with the terminal's control characters escaped.

    So foreign text (a name on a server, an error) must be a str here, not a ``Text``.
    """

    def __init__(self, *, stderr: bool = False, quiet: bool = False) -> None:
        super().__init__(stderr=stderr, quiet=quiet, highlight=False, markup=False, emoji=False)
        if isinstance(self.file, io.TextIOWrapper):
            self.file.reconfigure(errors="replace")  # bars, where the terminal has ASCII only

    def on_broken_pipe(self) -> None:
        """Leaves it to ``main``; rich would end the process."""
        raise  # noqa: PLE0704 - rich calls it where it has caught the error

    def render_str(self, text: str, **options: Any) -> Text:
        """The str as a ``Text``; rich calls it for all that it prints."""
        return super().render_str(printable(text), **options)


def console() -> Console:
    """Standard output; its lines are not wrapped where it is no terminal."""
    made = Console()
    if not made.is_terminal:
        made.width = _WIDE
    return made


def line(text: str) -> None:
    """Prints a line."""
    sys.stdout.write(f"{text}\n")


def print_json(value: Any) -> None:
    """Prints a value as JSON, in ASCII, which no terminal takes for commands; times are written as in ISO 8601."""

    def plain(value: Any) -> Any:
        if isinstance(value, datetime):
            return value.isoformat()
        raise TypeError(f"no JSON for {value!r}")

    line(json.dumps(value, indent=2, default=plain))


def show(value: Any, table: Callable[[], rich.console.RenderableType], *, as_json: bool) -> None:
    """Prints a result: as JSON, or as a table, which is made only then."""
    if as_json:
        print_json(value)
    else:
        console().print(table())


def show_list(
    found: list[dict[str, Any] | None],
    table: Callable[[list[dict[str, Any]]], rich.console.RenderableType],
    *,
    as_json: bool,
    empty: str,
) -> int:
    """Prints a list in the same way; returns 1 if a part of it could not be read (None), else 0."""
    readable = [one for one in found if one is not None]
    if readable or as_json:
        show(readable, lambda: table(readable), as_json=as_json)
    elif not found:
        sys.stderr.write(f"{empty}\n")
    return 0 if len(readable) == len(found) else 1


def facts(*rows: tuple[str, str, str]) -> Table:
    """A table with a name, a figure and a remark in each line."""
    table = Table.grid(padding=(0, 2))
    table.add_column()
    table.add_column(justify="right", no_wrap=True)
    table.add_column(style="dim")
    for row in rows:
        table.add_row(*row)
    return table


class Fitted:
    """A table that leaves out columns until it fits on the screen, the first of ``less`` first."""

    def __init__(self, table: Table, *less: str) -> None:
        self._table, self._less = table, less

    def __rich_console__(
        self, console: rich.console.Console, options: rich.console.ConsoleOptions
    ) -> Iterator[Table]:
        """Called by rich."""
        table = self._table
        for heading in self._less:
            if (
                console.measure(table, options=options.update(width=_WIDE)).maximum
                <= options.max_width
            ):
                break
            kept = [column for column in table.columns if column.header != heading]
            table.columns = [replace(column, _index=i) for i, column in enumerate(kept)]
        yield table


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

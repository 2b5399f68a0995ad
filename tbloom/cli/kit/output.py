"""Results on standard output: tables for people, JSON for programs."""

from __future__ import annotations

import json
import shutil
import sys
from datetime import datetime
from textwrap import wrap
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tbloom.cli.kit.formats import columns_of, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

T = TypeVar("T")
#: Wider than any line.
_WIDE = 10_000
#: The columns that a remark needs at least.
_LEAST_REMARK = 15


def line(text: str) -> None:
    """Prints text; its styles too, where standard output is a terminal."""
    sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr] # bars, where there is ASCII only
    click.echo(text, file=sys.stdout)


def print_json(value: Any) -> None:
    """Prints a value as JSON, in ASCII, which no terminal takes for commands; times are written as in ISO 8601."""

    def plain(value: Any) -> Any:
        if isinstance(value, datetime):
            return value.isoformat()
        raise TypeError(f"no JSON for {value!r}")

    line(json.dumps(value, indent=2, default=plain))


def show(value: Any, text: Callable[[], str], *, as_json: bool) -> None:
    """Prints a result: as JSON, or as text, which is made only then."""
    if as_json:
        print_json(value)
    else:
        line(text())


def show_list(
    found: list[T | None],
    as_dict: Callable[[T], dict[str, Any]],
    text: Callable[[list[T]], str],
    *,
    as_json: bool,
    empty: str,
) -> int:
    """Prints a list in the same way; returns 1 if a part of it could not be read (None), else 0."""
    readable = [one for one in found if one is not None]
    if as_json:
        print_json([as_dict(one) for one in readable])
    elif readable:
        line(text(readable))
    elif not found:
        sys.stderr.write(f"{empty}\n")
    return 0 if len(readable) == len(found) else 1


def dim(text: str) -> str:
    """Text that is less important."""
    return click.style(text, dim=True)


def sentence(text: str, **style: Any) -> str:
    """Foreign text on as many lines as it needs; ``style`` as for ``click.style``."""
    shown = printable(text)
    return click.style("\n".join(wrap(shown, _screen_width())), **style)


def warnings(sentences: Iterable[str]) -> list[str]:
    """A line, or more, for each warning."""
    return [sentence(f"warning: {each}", fg="yellow") for each in sentences]


def table(
    rows: Sequence[Mapping[str, str]],
    *,
    left: Collection[str] = (),
    less: Iterable[str] = (),
    totals: Mapping[str, str] | None = None,
    gap: int = 2,
) -> str:
    """Rows of cells by their headings, which are in the first line; ``totals`` are in the last one.

    :param left: the headings of text; the other columns are aligned on the right.
    :param less: the columns that are left out until the table fits on the screen, the first one first.
    :param gap: the spaces between two columns.
    """
    headings = {heading: heading for heading in rows[0]}
    lines = [headings, *rows] if totals is None else [headings, *rows, totals]
    cells = {h: [printable(row.get(h, "")) for row in lines] for h in headings}
    widths = {heading: max(map(columns_of, column)) for heading, column in cells.items()}
    for heading in less:
        if sum(widths.values()) + gap * (len(widths) - 1) <= _screen_width():
            break
        widths.pop(heading, None)
    columns = [
        [_padded(cell, width, is_left=heading in left) for cell in cells[heading]]
        for heading, width in widths.items()
    ]
    first, *others = ((" " * gap).join(row).rstrip() for row in zip(*columns, strict=True))
    return "\n".join([click.style(first, bold=True), *others])


def facts(*rows: tuple[str, str, str]) -> str:
    """A name, a figure and, where the screen is wide enough, a remark in each line."""
    names, figures = (max(len(row[place]) for row in rows) for place in (0, 1))
    indent = " " * (names + figures + 4)
    room = _screen_width() - len(indent)
    lines = []
    for name, figure, remark in rows:
        shown = f"\n{indent}".join(wrap(remark, room) if room >= _LEAST_REMARK else [])
        lines.append(f"{name:{names}}  {figure:>{figures}}  {dim(shown)}")
    return "\n".join(lines)


def _padded(cell: str, width: int, *, is_left: bool) -> str:
    space = " " * (width - columns_of(cell))
    return cell + space if is_left else space + cell


def _screen_width() -> int:
    """The columns of the terminal; more than any line needs where standard output is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else _WIDE

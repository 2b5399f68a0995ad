"""Results on standard output: tables for people, JSON for programs; remarks on standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from shutil import get_terminal_size
from textwrap import fill
from typing import Any, TypeVar

import click

from tbloom.cli.kit.errors import FAILED, CommandError, CommandFailed, one_line
from tbloom.cli.kit.formats import printable

T = TypeVar("T")
#: Wider than any line.
_ANY_WIDTH = 10_000
#: The columns between two columns of a table.
_GAP = 2
#: Text is not cut off to less than so many characters for the sake of another column.
_LEGIBLE = 30


def is_on(flag: str) -> bool:
    """Return whether the command has this flag, which ``options`` notes: "json", "quiet" or "yes"."""
    return bool(click.get_current_context().meta.get(flag))


def say(text: str) -> None:
    """Print a remark on standard error."""
    click.echo(printable(text), err=True)


def summary(text: str) -> None:
    """Print a remark on standard error, unless there is --quiet."""
    if not is_on("quiet"):
        say(text)


def confirm(question: str, failed: str) -> None:
    """Ask on the terminal, unless there is --yes. Raise CommandFailed unless the answer is yes."""
    if is_on("yes"):
        return
    if not sys.stdin.isatty():
        raise CommandError("--yes: needed where standard input is no terminal")
    # Not by click.confirm, which writes the end of the question to standard output.
    click.echo(f"{printable(question)} [y/N]: ", nl=False, err=True)
    answer = sys.stdin.readline()  # "" after Ctrl-D
    if answer.strip().lower() not in {"y", "yes"}:
        raise CommandFailed(failed)


def readable(answers: Iterable[tuple[str, T | Exception]]) -> tuple[list[T], int]:
    """Return the named answers that are not errors, and the exit code. Print errors on standard error: then the code is 1."""
    found, code = list[T](), 0
    for name, answer in answers:
        if isinstance(answer, Exception):
            say(f"tbloom: {one_line(f'{name}: {answer}')}")
            code = FAILED
        else:
            found.append(answer)
    return found, code


def line(text: str) -> None:
    """Print text."""
    sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr] # where there is ASCII only
    print(text)  # noqa: T201


def lines(texts: Sequence[str]) -> str:
    """Return the texts, one in each line (see ``printable``)."""
    return "\n".join(map(printable, texts))


def show(value: Any, text: Callable[[], str]) -> None:
    """Print a result: with --json as JSON, in ASCII, which no terminal takes for commands; otherwise as text, if there is any."""
    if is_on("json"):
        line(json.dumps(value, indent=2, default=datetime.isoformat))
    elif shown := text():
        line(shown)


def sentence(text: str) -> str:
    """Return text wrapped to the width of the terminal (see ``printable``)."""
    return fill(printable(text), _width(), break_long_words=False, break_on_hyphens=False)


def warnings(sentences: Iterable[str]) -> list[str]:
    """Return a line, or more, for each warning."""
    return [sentence(f"warning: {each}") for each in sentences]


def table(
    rows: Sequence[Mapping[str, str | int]],
    *,
    left: Collection[str] = (),
    totals: Mapping[str, str] | None = None,
    least: Sequence[str] = (),
) -> str:
    """Return rows of texts and numbers by their headings, which are in the first line; ``totals`` are in the last one.

    :param left: the headings of text; the other columns are aligned on the right.
    :param least: the headings of columns that a narrow terminal does without, the most important first; then text that is too wide
        all the same is cut off.
    """
    from rich.cells import cell_len, set_cell_size  # noqa: PLC0415 - what prints lines does without

    if not rows:
        return ""
    # Not rich's table: it takes seconds for thousands of rows.
    every = [dict(zip(rows[0], rows[0], strict=True)), *rows, *([totals] if totals else ())]
    cells = [{heading: _cell(row.get(heading, "")) for heading in rows[0]} for row in every]
    widths = {heading: max(cell_len(row[heading]) for row in cells) for heading in rows[0]}
    if least:
        widths = _fitting(widths, left, least)

    def line(row: Mapping[str, str]) -> str:
        shown = list[str]()
        for heading, width in widths.items():
            cell = row[heading]
            if cell_len(cell) > width:
                cell = set_cell_size(cell, width - 1) + "…"
            gap = " " * (width - cell_len(cell))
            shown.append(cell + gap if heading in left else gap + cell)
        return (" " * _GAP).join(shown).rstrip()

    return "\n".join(map(line, cells))


def _cell(value: str | int) -> str:
    return f"{value:,}" if isinstance(value, int) else printable(value)


def _fitting(
    widths: Mapping[str, int], left: Collection[str], least: Sequence[str]
) -> dict[str, int]:
    """Return the widths of the columns that fit into the terminal, by their headings; those that are not among ``least`` always do."""
    room = _width() + _GAP
    # Text that always stands there is cut off before a column goes.
    texts = [heading for heading in widths if heading in left and heading not in least]
    found = {heading: width + _GAP for heading, width in widths.items() if heading not in least}
    found |= {text: min(found[text], _LEGIBLE) for text in texts}
    for heading in least:
        if heading in widths and sum(found.values()) + widths[heading] + _GAP <= room:
            found[heading] = widths[heading] + _GAP
    for text in texts:
        found[text] = max(1, min(widths[text] + _GAP, found[text] + room - sum(found.values())))
    return {heading: found[heading] - _GAP for heading in widths if heading in found}


def _width() -> int:
    """Return the terminal's width; elsewhere, lines have any width."""
    return get_terminal_size().columns if sys.stdout.isatty() else _ANY_WIDTH

"""Results on standard output: tables for people, JSON for programs; remarks on standard error."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from textwrap import fill
from typing import Any, TypeVar
from unicodedata import combining, east_asian_width

import click

from tbloom.cli.kit import formats
from tbloom.cli.kit.errors import FAILED, CommandError, CommandFailed, one_line
from tbloom.cli.kit.formats import printable

T = TypeVar("T")
#: Wider than any line.
_WIDE = 10_000
_GAP = 2


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
    """Print text, with its styles if standard output is a terminal that takes them and NO_COLOR (no-color.org) is not set."""
    sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr] # where there is ASCII only
    is_plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    click.echo(text, file=sys.stdout, color=False if is_plain else None)


def lines(texts: Sequence[str]) -> str:
    """Return the texts, one in each line (see ``printable``)."""
    return "\n".join(map(printable, texts))


def show(value: Any, text: Callable[[], str]) -> None:
    """Print a result: with --json as JSON, in ASCII, which no terminal takes for commands; otherwise as text, if there is any."""
    if is_on("json"):
        line(json.dumps(value, indent=2, default=datetime.isoformat))
    elif shown := text():
        line(shown)


def show_again(value: Any, text: Callable[[], str]) -> None:
    """Print a result in place of the last one; with --json in a line of its own, without a terminal below the last one."""
    if is_on("json"):
        line(json.dumps(value))
        return
    shown, is_terminal = text(), sys.stdout.isatty()
    if is_terminal:
        click.clear()
    line(shown if is_terminal else f"{shown}\n")


def sentence(text: str, **style: Any) -> str:
    """Return text wrapped to the width of the terminal (see ``printable``); ``style`` as for ``click.style``."""
    return click.style(fill(printable(text), _screen_width()), **style)


def warnings(sentences: Iterable[str]) -> list[str]:
    """Return a line, or more, for each warning."""
    return [sentence(f"warning: {each}", fg="yellow") for each in sentences]


def table(
    rows: Sequence[Mapping[str, str]],
    *,
    left: Collection[str] = (),
    totals: Mapping[str, str] | None = None,
) -> str:
    """Return rows of cells by their headings, which are in the first line; ``totals`` are in the last one.

    Columns for which the screen has no room are in a further table below, beside the first column again.

    :param left: the headings of text; the other columns are aligned on the right.
    """
    if not rows:
        return ""
    headings = {heading: heading for heading in rows[0]}
    lines = [headings, *rows] if totals is None else [headings, *rows, totals]
    cells = {h: [printable(row.get(h, "")) for row in lines] for h in headings}
    first, *others = (_column(column, is_left=heading in left) for heading, column in cells.items())
    room = _screen_width() - columns_of(first[0])
    parts, used = [[first]], 0
    for column in others:
        used += _GAP + columns_of(column[0])
        if used > room and len(parts[-1]) > 1:
            parts.append([first])
            used = _GAP + columns_of(column[0])
        parts[-1].append(column)
    return "\n\n".join(map(_joined, parts))


def _column(cells: list[str], *, is_left: bool) -> list[str]:
    """Return the cells, all of the same width."""
    width = max(map(columns_of, cells))
    gaps = [" " * (width - columns_of(cell)) for cell in cells]
    return [
        f"{cell}{gap}" if is_left else f"{gap}{cell}" for cell, gap in zip(cells, gaps, strict=True)
    ]


def _joined(columns: list[list[str]]) -> str:
    first, *others = ((" " * _GAP).join(row).rstrip() for row in zip(*columns, strict=True))
    return "\n".join([click.style(first, bold=True), *others])


def columns_of(text: str) -> int:
    """Return the columns of a terminal that a text takes: wide characters (CJK, emoji) take two, and accents none."""
    if text.isascii():
        return len(text)
    return sum(
        0 if combining(each) else 2 if east_asian_width(each) in "WF" else 1 for each in text
    )


def _screen_width() -> int:
    """Return the columns of the terminal; more than any line needs if standard output is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else _WIDE


def page(template: str, **values: Any) -> bytes:
    """Return an HTML page in UTF-8, of a template beside the commands. Values are escaped: names of filters are not trusted."""
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415 - of an extra

    environment = Environment(
        loader=PackageLoader("tbloom.cli", "commands"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    shown = {"size": formats.size, "rate": formats.rate, "moment": formats.moment}
    environment.filters |= {"number": "{:,}".format, **shown}
    html = environment.get_template(template).render(**values)
    return html.encode(errors="replace")  # a URL may have bytes that are no UTF-8

"""Progress of a command: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import itertools
import os
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from tbloom.cli.kit.formats import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TextIO

_LINE_SECONDS = 5.0


def can_animate(file: TextIO) -> bool:
    """The file is a terminal that can redraw lines."""
    return file.isatty() and os.environ.get("TERM") != "dumb" and not os.environ.get("CI")


class Reporter:
    """Prints messages and progress, on stderr where stdout is for results; ``quiet`` prints nothing."""

    def __init__(self, *, stderr: bool, quiet: bool = False) -> None:
        self._file = sys.stderr if stderr else sys.stdout
        self._quiet = quiet or self._file is None  # the shell has closed standard error

    def say(self, text: str) -> None:
        """Prints one line."""
        if not self._quiet:
            click.echo(printable(text), file=self._file)

    @contextmanager
    def count(
        self, text: str, total: int | None, unit: str = "pages"
    ) -> Iterator[Callable[[int], None]]:
        """Yields a function that takes the number of units done."""
        if self._quiet or not can_animate(self._file):
            yield self._in_lines(text, total, unit)
            return
        label, steps = f"{printable(text)} ({unit})", itertools.count() if total is None else None
        with click.progressbar(steps, total, label, show_pos=True, file=self._file, width=0) as bar:
            yield lambda done: bar.update(done - bar.pos)

    def wait(self, text: str, seconds_left: Callable[[], float]) -> None:
        """Waits until ``seconds_left()`` is zero or less."""
        whole = round(seconds_left())
        if whole > 0:
            with self.count(f"{text}: {whole} s", whole, "seconds") as advance:
                while (left := seconds_left()) > 0:
                    advance(whole - round(left))
                    time.sleep(min(left, 1))

    def _in_lines(self, text: str, total: int | None, unit: str) -> Callable[[int], None]:
        self.say(f"{text} ...")
        printed = time.monotonic()

        def advance(done: int) -> None:
            nonlocal printed
            if time.monotonic() - printed >= _LINE_SECONDS:
                printed = time.monotonic()
                of = f"{done:,}" if total is None else f"{done:,} of {total:,}"
                self.say(f"  {of} {unit}{' so far' if total is None else ''}")

        return advance

"""Progress of a command: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import itertools
import math
import os
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

import click

from tbloom.cli.kit.formats import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TextIO

_LINE_SECONDS = 5.0
#: Bytes between two steps of a bar.
_STEP_BYTES = 1 << 20


class Advance(Protocol):
    """Shows progress."""

    def __call__(self, done: int, total: int | None = None) -> None:
        """Takes the units done; and their total, where it was not known before."""


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
    def count(self, text: str, total: int | None, unit: str = "pages") -> Iterator[Advance]:
        """Yields a function that takes the number of units done, and their total where it becomes known only then."""
        if self._quiet or not can_animate(self._file):
            yield self._in_lines(text, total, unit)
            return
        steps = itertools.count() if total is None else None
        label, least = f"{printable(text)} ({unit})", _STEP_BYTES if unit == "bytes" else 1
        known = 0
        with click.progressbar(
            steps, total, label, show_pos=True, file=self._file, width=0, update_min_steps=least
        ) as bar:

            def advance(done: int, total: int | None = None) -> None:
                nonlocal known
                bar.length = bar.length or total
                bar.update(done - known)
                known = done

            yield advance

    def wait(self, text: str, seconds_left: Callable[[], float]) -> None:
        """Waits until ``seconds_left()`` is zero or less."""
        whole = math.ceil(seconds_left())
        if whole > 0:
            with self.count(f"{text}: {whole} s", whole, "seconds") as advance:
                while (left := seconds_left()) > 0:
                    advance(whole - math.ceil(left))
                    time.sleep(min(left, 1))

    def _in_lines(self, text: str, total: int | None, unit: str) -> Advance:
        printed: float | None = None
        whole = total

        def advance(done: int, total: int | None = None) -> None:
            nonlocal printed
            if printed is None:  # not before, so that an error at the beginning is the only line
                printed = time.monotonic()
                self.say(f"{text} ...")
            if time.monotonic() - printed >= _LINE_SECONDS:
                printed = time.monotonic()
                of = f" of {known:,} {unit}" if (known := whole or total) else f" {unit} so far"
                self.say(f"  {done:,}{of}")

        return advance

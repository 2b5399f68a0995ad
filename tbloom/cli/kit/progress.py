"""Progress of a command: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING

from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from tbloom.cli.kit.output import Console

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_LINE_SECONDS = 5.0
_TICK_SECONDS = 0.1


def can_animate(console: Console) -> bool:
    """The console is a terminal that can redraw lines."""
    terminal = console.is_terminal and not console.is_dumb_terminal and console.file.isatty()
    return terminal and not os.environ.get("CI")


class Reporter:
    """Prints messages and progress, on stderr where stdout is for results; ``quiet`` prints nothing."""

    def __init__(self, *, stderr: bool, quiet: bool = False) -> None:
        self.console = Console(stderr=stderr, quiet=quiet)
        self._animated = can_animate(self.console)

    def say(self, text: str) -> None:
        """Prints one line, without wrapping it."""
        self.console.print(text, soft_wrap=True)
        self.console.file.flush()

    @contextlib.contextmanager
    def count(
        self, text: str, total: int | None, unit: str = "pages"
    ) -> Iterator[Callable[[int], None]]:
        """Yields a function that takes the number of units done."""
        if not self._animated:
            yield self._in_lines(text, total, unit)
            return
        of = "" if total is None else " of {task.total:,.0f}"
        with self._bar(f"{{task.completed:,.0f}}{of} {unit}") as bar:
            task = bar.add_task(text, total=total)
            yield lambda done: bar.update(task, completed=done)

    def wait(self, text: str, seconds_left: Callable[[], float]) -> None:
        """Waits until ``seconds_left()`` is zero or less."""
        whole = seconds_left()
        if not self._animated:
            if whole > 0:
                self.say(f"{text}: {whole:.0f} s ...")
            while (left := seconds_left()) > 0:
                time.sleep(min(left, 1))
            return
        with self._bar("{task.fields[left]:.0f} s left") as bar:
            task = bar.add_task(text, total=max(whole, 0.001), left=whole)
            while (left := seconds_left()) > 0:
                bar.update(task, completed=whole - left, left=max(0, left))
                time.sleep(min(left, _TICK_SECONDS))

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

    def _bar(self, figures: str) -> Progress:
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn(figures, markup=False),
            TimeElapsedColumn(),
        )
        return Progress(*columns, console=self.console, transient=True)

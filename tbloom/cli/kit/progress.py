"""A progress bar, for what takes more than two seconds on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from time import monotonic
from typing import Any

from tbloom.cli.kit.output import is_on

#: A bar for a shorter time (s) would only flicker.
_SHOWN_AFTER = 2.0


@contextmanager
def bar(unit: str, total: int, *, prints: bool = False) -> Iterator[Callable[[int], None]]:
    """Yield a function that takes how many more units are done. ``total`` is an estimate of all units, 0 for unknown.

    No bar is shown without a terminal, with --quiet, or if the command ``prints`` lines on the same terminal.
    """
    begin, done = monotonic(), 0
    shown: Any = None
    is_wanted = sys.stderr.isatty() and not ((prints and sys.stdout.isatty()) or is_on("quiet"))
    with ExitStack() as stack:

        def advance(count: int) -> None:
            nonlocal done, shown
            done += count
            if shown is None and is_wanted and monotonic() - begin > _SHOWN_AFTER:
                shown = stack.enter_context(_progress(unit))
                shown.add_task(unit, total=total or None)
            if shown:
                shown.update(shown.task_ids[0], completed=done)

        yield advance
        if shown:  # the total was an estimate
            shown.update(shown.task_ids[0], total=done)


def _progress(unit: str) -> Any:
    """Return a bar with percentage, units or bytes, and time left."""
    from rich import progress  # noqa: PLC0415 - most commands show none
    from rich.console import Console  # noqa: PLC0415 - the same

    done: Any = "{task.completed:,.0f}"
    if unit == "bytes":
        done = progress.DownloadColumn()
    columns = (
        progress.BarColumn(),
        progress.TaskProgressColumn(),
        done,
        progress.TimeRemainingColumn(),
    )
    # Standard output is not redirected: answers go there as they are.
    return progress.Progress(
        "{task.description}", *columns, console=Console(stderr=True), redirect_stdout=False
    )

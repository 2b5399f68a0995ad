"""A progress bar, for what takes more than two seconds on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from time import monotonic
from typing import Any

import click

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

    def speed(_: object) -> str:
        rate = done / max(monotonic() - begin, 1e-9)
        return f"{rate / (1 << 20):,.1f} MB/s" if unit == "bytes" else f"{rate:,.0f} {unit}/s"

    with ExitStack() as stack:

        def advance(count: int) -> None:
            nonlocal done, shown
            done += count
            if shown:
                shown.update(count, done)
            elif is_wanted and monotonic() - begin > _SHOWN_AFTER:
                # Longer than ``done``, because click ends a full bar.
                shown = stack.enter_context(
                    click.progressbar(
                        length=max(total, done + 1) if total else None,
                        label=unit,
                        item_show_func=speed,
                        file=sys.stderr,
                    )
                )
                shown.update(done, done)

        yield advance

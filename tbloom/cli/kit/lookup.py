"""The arguments of ``tbloom add`` and ``tbloom check``, and their loop over lines."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from tbloom.cli.kit import formats, interrupts, lines, options, streams
from tbloom.cli.kit.progress import Reporter

if TYPE_CHECKING:
    from collections.abc import Iterable
    from contextlib import AbstractContextManager

    from tbloom import TimeBloom

    #: Returns each of the items with its answer: True if it is new.
    Ask = Callable[[TimeBloom, list[bytes]], Iterable[tuple[bytes, bool]]]


@dataclass(frozen=True, slots=True)
class Lookup:
    """The lines to look up, and which of them to print."""

    files: tuple[str, ...]
    #: Print the seen items, not the new ones.
    seen: bool
    within: int | None
    quiet: bool

    def run(self, what: str, opened: AbstractContextManager[TimeBloom], ask: Ask) -> int:
        """Prints the new items, or the seen ones; returns their number."""
        streams.check_output()
        reporter = Reporter(stderr=True, quiet=self.quiet)
        printed = total = 0
        with ExitStack() as stack:
            files = lines.open_files(stack, self.files)
            filter = stack.enter_context(opened)
            advance = stack.enter_context(reporter.count(what, None, "lines"))
            for items in (items for file in files for items, _ in lines.batches(file)):
                wanted: list[bytes] = []
                with interrupts.step():
                    try:
                        for item, new in ask(filter, items):
                            if new is not self.seen:
                                wanted.append(item)
                    finally:
                        # Also after an error: an item that was added is never answered new again.
                        streams.write_lines(wanted)
                printed += len(wanted)
                total += len(items)
                advance(total)
        kind = "seen" if self.seen else "new"
        reporter.say(f"{formats.counted(total, 'line')}, {printed:,} {kind}")
        return printed


def lookup_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """NAME, FILE ..., --url, --seen, --within and --quiet; all but the name and the URL as a ``Lookup``."""

    @options.name
    @options.files
    @options.url
    @click.option("--seen", is_flag=True, help="print the seen items, not the new ones")
    @click.option("--within", type=int, metavar="N", help="check the newest N slices only (all)")
    @options.quiet
    @wraps(function)
    def command(files: Any, *, seen: bool, within: int | None, quiet: bool, **others: Any) -> Any:
        return function(lookup=Lookup(files, seen, within, quiet), **others)

    return command

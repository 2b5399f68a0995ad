"""What ``tbloom add`` and ``tbloom check`` have in common: a filter in a shell's pipeline, an item in each line."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from tbloom.cli import filters, interrupts
from tbloom.cli.errors import CommandError
from tbloom.cli.progress import Reporter

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Iterator
    from contextlib import AbstractContextManager

    from tbloom import TimeBloom

    #: Which of these items are new?
    Ask = Callable[[TimeBloom, list[bytes]], list[bool]]

#: So many lines are asked for, and printed, at once.
_AT_ONCE = 2000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """URL, NAME, FILE ..., --seen, --within, --quiet."""
    filters.add_arguments(parser)
    parser.add_argument(
        "files", metavar="FILE", nargs="*", help="an item in each line; - or none: standard input"
    )
    parser.add_argument(
        "--seen", action="store_true", help="print the items that have been seen, not the new ones"
    )
    parser.add_argument(
        "--within", type=int, metavar="N", help="ask the newest N slices only (all)"
    )
    parser.add_argument("--quiet", action="store_true", help="no progress bar and no summary")


def run(
    arguments: argparse.Namespace, what: str, opened: AbstractContextManager[TimeBloom], ask: Ask
) -> int:
    """Prints the new items, or those seen. 0: there are some; 1: none."""
    reporter = Reporter(stderr=True, quiet=arguments.quiet)
    printed = total = 0
    with ExitStack() as stack:
        # Opened before anything is asked, so that a wrong name changes nothing.
        items = lines([open_file(stack, file) for file in arguments.files or ["-"]])
        seen = stack.enter_context(opened)
        advance = stack.enter_context(reporter.count(what, None, "lines"))
        look = stack.enter_context(interrupts.held_back())
        while some := list(islice(items, _AT_ONCE)):
            wanted = [
                item
                for item, new in zip(some, ask(seen, some), strict=True)
                if new is not arguments.seen
            ]
            # At once: what is added and not printed would be lost if the rest went wrong.
            sys.stdout.buffer.writelines(item + b"\n" for item in wanted)
            sys.stdout.buffer.flush()
            printed += len(wanted)
            total += len(some)
            advance(total)
            look()
    reporter.say(f"{total:,} lines, {printed:,} {'seen' if arguments.seen else 'new'}")
    return 0 if printed else 1


def lines(files: Iterable[BinaryIO]) -> Iterator[bytes]:
    """The files' lines without their ends; empty ones are left out."""
    for file in files:
        for line in file:
            if item := line.rstrip(b"\r\n"):
                yield item


def open_file(stack: ExitStack, file: str) -> BinaryIO:
    """The file, open for as long as the stack is; ``-`` is standard input."""
    if file == "-":
        return sys.stdin.buffer
    try:
        return stack.enter_context(Path(file).open("rb"))
    except OSError as error:
        raise CommandError(f"{file}: {error.strerror}") from None

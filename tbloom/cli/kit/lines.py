"""Files with an item in each line, and the loop of ``tbloom add`` and ``tbloom check`` over them."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from tbloom.cli.kit import filters, interrupts
from tbloom.cli.kit.errors import CommandError
from tbloom.cli.kit.progress import Reporter

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Iterator
    from contextlib import AbstractContextManager

    from tbloom import TimeBloom

    #: Returns each of the items with its answer: True if it is new.
    Ask = Callable[[TimeBloom, list[bytes]], Iterable[tuple[bytes, bool]]]

#: Bytes per read.
_READ_BYTES = 1 << 16


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """NAME, FILE ..., --url, --seen, --within, --quiet."""
    filters.add_arguments(parser)
    parser.add_argument(
        "files", metavar="FILE", nargs="*", help="an item in each line; - or none: standard input"
    )
    parser.add_argument(
        "--seen", action="store_true", help="print the seen items, not the new ones"
    )
    parser.add_argument(
        "--within", type=int, metavar="N", help="check the newest N slices only (all)"
    )
    parser.add_argument("--quiet", action="store_true", help="no progress bar and no summary")


def run(
    arguments: argparse.Namespace, what: str, opened: AbstractContextManager[TimeBloom], ask: Ask
) -> int:
    """Prints the new items, or the seen ones. 0: an item was printed; 1: none."""
    if sys.stdout is None:
        raise CommandError("standard output is closed")
    reporter = Reporter(stderr=True, quiet=arguments.quiet)
    printed = total = 0
    with ExitStack() as stack:
        # Files are opened first, so that a wrong name changes nothing.
        files = [open_file(stack, file) for file in arguments.files or ["-"]]
        seen = stack.enter_context(opened)
        advance = stack.enter_context(reporter.count(what, None, "lines"))
        for items in (items for file in files for items, _ in batches(file)):
            wanted: list[bytes] = []
            with interrupts.step():
                try:
                    for item, new in ask(seen, items):
                        if new is not arguments.seen:
                            wanted.append(item)
                finally:
                    # Also after an error: an item that was added is never answered new again.
                    sys.stdout.buffer.writelines(item + b"\n" for item in wanted)
                    sys.stdout.buffer.flush()
            printed += len(wanted)
            total += len(items)
            advance(total)
    reporter.say(f"{total:,} lines, {printed:,} {'seen' if arguments.seen else 'new'}")
    return 0 if printed else 1


def batches(file: BinaryIO) -> Iterator[tuple[list[bytes], int]]:
    """Batches of the file's lines, as they can be read without waiting, each with its size (bytes).

    Line ends and empty lines are left out.
    """
    rest = b""
    while data := file.read1(_READ_BYTES):  # type: ignore[attr-defined] # of a file, and of standard input
        whole, end, rest = (rest + data).rpartition(b"\n")
        if end:
            yield _items(whole), len(whole) + 1
    if rest:
        yield _items(rest), len(rest)


def _items(data: bytes) -> list[bytes]:
    return [item for line in data.split(b"\n") if (item := line.rstrip(b"\r"))]


def open_file(stack: ExitStack, file: str) -> BinaryIO:
    """The file, which the stack closes; ``-`` is standard input."""
    if file == "-":
        if sys.stdin is None:
            raise CommandError("standard input is closed")
        return sys.stdin.buffer
    try:
        return stack.enter_context(Path(file).open("rb"))
    except OSError as error:
        raise CommandError(f"{file}: {error.strerror}") from None

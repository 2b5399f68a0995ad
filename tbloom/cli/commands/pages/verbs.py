"""The sub-commands of ``tbloom pages``, with their exit codes."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from tbloom.cli.commands.pages import rendering
from tbloom.cli.kit import formats, interrupts, lines, outfile, output
from tbloom.cli.kit.errors import CommandError, CommandFailed
from tbloom.cli.kit.progress import Reporter
from tbloom.errors import ConfigError
from tbloom.pages import PageStore, calendar, opening, page
from tbloom.pages.calendar import Calendar
from tbloom.pages.config import PagesConfig, given

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator

#: Bytes between two steps of a progress bar: most records are much smaller.
_STEP_BYTES = 1 << 20
_READ_BYTES = 1 << 20


def put(arguments: argparse.Namespace) -> int:
    """Stores a page, in a new store if there is none."""
    like = {"granularity": arguments.granularity, "slices": arguments.slices, "tz": arguments.tz}
    details = {"status": arguments.status, "headers": arguments.headers}
    at = calendar.now() if arguments.at is None else arguments.at
    # All arguments are checked first, so that a wrong one creates no store.
    page.check_page(arguments.url, b"", at, **details)
    Calendar(given(**like) or PagesConfig(None)).slice_of(at)
    opening.folder(arguments.path)
    body = _body(arguments.file or "-")
    page.check_page(arguments.url, body, at)
    with PageStore(arguments.path, **like, codec=arguments.codec) as store, interrupts.step():
        store.put(arguments.url, body, at=at, **details)
    return 0


def _body(name: str) -> bytes:
    """The file's bytes; of a file that is too large, a little more than a page may have."""
    chunks, size = [], 0
    with ExitStack() as stack:
        file = lines.open_file(stack, name)
        while size <= page.MAX_BYTES and (chunk := file.read(_READ_BYTES)):
            chunks.append(chunk)
            size += len(chunk)
    return b"".join(chunks)


def get(arguments: argparse.Namespace) -> int:
    """Writes a page. 1: the store has none of this URL."""
    if arguments.json and arguments.decoded:
        raise CommandError("--decoded: --json writes no body")
    address = rendering.address(arguments.address)
    with _reading(arguments) as store:
        found = store.get(address)
    if found is None:
        raise _none(arguments)
    if arguments.json:
        content = f"{rendering.as_json(found)}\n".encode()
    else:
        content = rendering.http_head(found) if arguments.headers else b""
        content += found.decoded() if arguments.decoded else found.body
    with outfile.writing(arguments.output) as file:
        file.write(content)
    return 0


def list_pages(arguments: argparse.Namespace) -> int:
    """Prints the address of each page."""
    with _reading(arguments) as store:
        if arguments.json or arguments.long:
            form = rendering.as_json if arguments.json else rendering.as_line
            rendering.write_lines(map(form, store.pages()))
        else:  # without reading the bodies
            rendering.write_lines(map(rendering.as_word, store))
    return 0


def delete(arguments: argparse.Namespace) -> int:
    """Deletes a page. 1: the store has none of this URL."""
    address = rendering.address(arguments.address)
    root = opening.folder(arguments.path)
    # Opened for writing, a missing store would be created.
    if not opening.is_store(root):
        raise ConfigError("path", arguments.path, "a folder with a page store")
    with PageStore(root) as store, interrupts.step():
        if not store.delete(address):
            raise _none(arguments)
    return 0


def verify(arguments: argparse.Namespace) -> int:
    """Prints the problems. 1: there are some."""
    reporter = Reporter(stderr=True, quiet=arguments.quiet)
    with _reading(arguments) as store, _bar(reporter, "Verifying") as progress:
        report = store.verify(progress)
    for problem in report.problems:
        output.line(formats.printable(problem))
    problems = len(report.problems)
    reporter.say(
        f"{formats.counted(report.pages, 'page')}, {formats.counted(report.records, 'record')}: "
        f"{formats.counted(problems, 'problem') if problems else 'no problems'}"
    )
    return 1 if problems else 0


def rebuild(arguments: argparse.Namespace) -> int:
    """Rebuilds the index."""
    reporter = Reporter(stderr=True, quiet=arguments.quiet)
    with _bar(reporter, "Rebuilding") as progress, interrupts.held_back() as look:

        def advance(done: int, total: int) -> None:
            progress(done, total)
            look()

        info = PageStore.rebuild(arguments.path, advance)
    reporter.say(
        f"{formats.counted(info.pages, 'page')}, {formats.counted(info.records, 'record')} in "
        f"{formats.counted(info.segments, 'segment')}; index {formats.size(info.index_bytes)}"
    )
    return 0


def stats(arguments: argparse.Namespace) -> int:
    """Prints the store's figures."""
    with _reading(arguments) as store:
        info = store.stats()
    if arguments.json:
        output.print_json(rendering.as_dict(info))
    else:
        output.console().print(rendering.as_table(info))
    return 0


def _reading(arguments: argparse.Namespace) -> PageStore:
    return PageStore(arguments.path, readonly=True)


def _none(arguments: argparse.Namespace) -> CommandFailed:
    return CommandFailed(f"no page {arguments.address!r} in {arguments.path!r}")


@contextmanager
def _bar(reporter: Reporter, text: str) -> Iterator[Callable[[int, int], None]]:
    """Yields a function that takes the bytes done, and their total, which is known only then."""
    with ExitStack() as stack:
        advance: Callable[[int], None] | None = None
        shown = 0

        def progress(done: int, total: int) -> None:
            nonlocal advance, shown
            if advance is None:
                advance = stack.enter_context(reporter.count(text, total, "bytes"))
            if done - shown >= _STEP_BYTES or done == total:
                shown = done
                advance(done)

        yield progress

"""What each verb of ``tbloom pages`` does; the exit codes."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from tbloom.cli.kit import interrupts, lines, outfile, pagetext, show, words
from tbloom.cli.kit.errors import CommandError, CommandFailed
from tbloom.cli.kit.progress import Reporter
from tbloom.errors import ConfigError
from tbloom.pages import PageStore, calendar, opening, page, segments
from tbloom.pages.calendar import Calendar
from tbloom.pages.config import PagesConfig, given
from tbloom.pages.index import newest_of

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator

#: The bar is told of so many bytes at a time: the record of a page may have few.
_TOLD_BYTES = 1 << 20
_READ_BYTES = 1 << 20


def put(arguments: argparse.Namespace) -> int:
    """Stores a page; the store may be new."""
    like = {"granularity": arguments.granularity, "slices": arguments.slices, "tz": arguments.tz}
    details = {"status": arguments.status, "headers": arguments.headers}
    at = calendar.now() if arguments.at is None else arguments.at
    # Checked, and read, before a store is begun, so that a wrong argument changes nothing.
    page.check_page(arguments.url, b"", at, **details)
    Calendar(given(**like) or PagesConfig(None)).slice_of(at)
    opening.folder(arguments.path)
    body = _body(arguments.file or "-")
    page.check_page(arguments.url, body, at)
    with PageStore(arguments.path, **like) as store, interrupts.step():
        store.put(arguments.url, body, at=at, **details)
    return 0


def _body(name: str) -> bytes:
    """The file's bytes, or more than a page may have of them."""
    chunks, size = [], 0
    with ExitStack() as stack:
        file = lines.open_file(stack, name)
        while size <= page.MAX_BYTES and (chunk := file.read(_READ_BYTES)):
            chunks.append(chunk)
            size += len(chunk)
    return b"".join(chunks)


def get(arguments: argparse.Namespace) -> int:
    """Writes a page. 1: there is none."""
    if arguments.json and arguments.decoded:
        raise CommandError("--decoded: there is no body with --json")
    address = pagetext.address(arguments.address)
    with _reading(arguments) as store:
        found = store.get(address)
    if found is None:
        raise _none(arguments)
    if arguments.json:
        told = f"{pagetext.as_json(found)}\n".encode()
    else:
        told = pagetext.http_head(found) if arguments.headers else b""
        told += found.decoded() if arguments.decoded else found.body
    with outfile.writing(arguments.output) as file:
        view = memoryview(told)
        while view:  # without a buffer (PYTHONUNBUFFERED), not all may be taken at once
            view = view[file.write(view) :]
    return 0


def list_pages(arguments: argparse.Namespace) -> int:
    """Prints what gets each page."""
    with _reading(arguments) as store:
        if arguments.json or arguments.long:
            told = pagetext.as_json if arguments.json else pagetext.as_line
            pagetext.write_lines(map(told, store.pages()))
        else:  # without reading the bodies
            pagetext.write_lines(map(pagetext.as_word, store))
    return 0


def delete(arguments: argparse.Namespace) -> int:
    """Forgets a page. 1: there is none."""
    address = pagetext.address(arguments.address)
    root = opening.folder(arguments.path)
    # Opened to write, a store would be begun.
    if not root.is_dir() or not (newest_of(root) or segments.stored(root)):
        raise ConfigError("path", arguments.path, "a folder with a page store")
    with PageStore(root) as store, interrupts.step():
        if not store.delete(address):
            raise _none(arguments)
    return 0


def verify(arguments: argparse.Namespace) -> int:
    """Prints what is wrong. 1: something is."""
    reporter = Reporter(stderr=True, quiet=arguments.quiet)
    with _reading(arguments) as store, _bar(reporter, "Verifying") as progress:
        report = store.verify(progress)
    for problem in report.problems:
        show.line(words.printable(problem))
    wrong = len(report.problems)
    reporter.say(
        f"{words.counted(report.pages, 'page')}, {words.counted(report.records, 'record')}: "
        f"{words.counted(wrong, 'problem') if wrong else 'no problems'}"
    )
    return 1 if wrong else 0


def rebuild(arguments: argparse.Namespace) -> int:
    """Makes the index anew."""
    reporter = Reporter(stderr=True, quiet=arguments.quiet)
    with _bar(reporter, "Rebuilding") as progress, interrupts.held_back() as look:

        def advance(done: int, total: int) -> None:
            progress(done, total)
            look()

        info = PageStore.rebuild(arguments.path, advance)
    reporter.say(
        f"{words.counted(info.pages, 'page')}, {words.counted(info.records, 'record')} in "
        f"{words.counted(info.segments, 'segment')}; index {words.size(info.index_bytes)}"
    )
    return 0


def stats(arguments: argparse.Namespace) -> int:
    """Prints the numbers."""
    with _reading(arguments) as store:
        info = store.stats()
    if arguments.json:
        show.print_json(pagetext.as_dict(info))
    else:
        show.console().print(pagetext.as_table(info))
    return 0


def _reading(arguments: argparse.Namespace) -> PageStore:
    return PageStore(arguments.path, readonly=True)


def _none(arguments: argparse.Namespace) -> CommandFailed:
    return CommandFailed(f"no page {arguments.address!r} in {arguments.path!r}")


@contextmanager
def _bar(reporter: Reporter, text: str) -> Iterator[Callable[[int, int], None]]:
    """Yields what is to be told how many bytes are done, and of how many: known only then."""
    with ExitStack() as stack:
        advance: Callable[[int], None] | None = None
        said = 0

        def progress(done: int, total: int) -> None:
            nonlocal advance, said
            if advance is None:
                advance = stack.enter_context(reporter.count(text, total, "bytes"))
            if done - said >= _TOLD_BYTES or done == total:
                said = done
                advance(done)

        yield progress

"""``tbloom pages import``."""

from __future__ import annotations

import errno
import os
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from tbloom.cli.kit import formats, interrupts, lines, output
from tbloom.cli.kit.errors import CommandError
from tbloom.cli.kit.progress import Reporter
from tbloom.errors import ConfigError
from tbloom.pages import PageStore, opening
from tbloom.pages.config import given
from tbloom.pages.exchange.importing import import_pages
from tbloom.pages.exchange.warcs import WarcFiles, is_warc

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from tbloom.pages import Page, PagesImported
    from tbloom.pages.exchange.importing import Source

#: As a source.
_STDIN = "-"


class _Store:
    """Another store as a source."""

    unit = "pages"

    def __init__(self, store: PageStore) -> None:
        self._store = store
        self.name, self.total, self.done = store.path, len(store), 0

    def __iter__(self) -> Iterator[Page]:
        for page in self._store.pages():
            self.done += 1
            yield page


def run(arguments: argparse.Namespace) -> int:
    """Stores the pages of all sources, in a new store if there is none. 1: a part of them can't be read."""
    like = {"granularity": arguments.granularity, "slices": arguments.slices, "tz": arguments.tz}
    reporter = Reporter(stderr=True, quiet=arguments.quiet)
    # All is checked first, so that a wrong argument creates no store.
    given(**like)
    folder = opening.folder(arguments.path)
    results = []
    with ExitStack() as stack:
        sources = _sources(stack, arguments, folder)
        store = stack.enter_context(PageStore(folder, **like, codec=arguments.codec))
        look = stack.enter_context(interrupts.held_back())
        for source in sources:
            with reporter.count(f"Importing {source.name}", source.total, source.unit) as advance:

                def progress(done: int, _total: int | None) -> None:
                    advance(done)
                    look()

                results.append(import_pages(store, source, progress))
    for where in (where for result in results for where in result.damaged):
        output.line(formats.printable(where))
    reporter.say(_summary(results))
    return 1 if any(result.damaged for result in results) else 0


def _summary(results: list[PagesImported]) -> str:
    skipped: Counter[str] = Counter()
    for result in results:
        skipped.update(result.skipped)
    stored, present = sum(one.stored for one in results), sum(one.present for one in results)
    rest = ", ".join(f"{number:,} {kind}" for kind, number in skipped.most_common())
    return f"{formats.counted(stored, 'page')} stored, {present:,} already there; skipped: {rest or 'nothing'}"


def _sources(stack: ExitStack, arguments: argparse.Namespace, folder: Path) -> list[Source]:
    """The sources that the words name; all WARC files are one."""
    warcs: list[str | BinaryIO] = []
    others: list[Source] = []
    for word in arguments.files:
        path = Path(word)
        if word == _STDIN or path.is_fifo():
            warcs.append(lines.open_file(stack, word))
        elif opening.is_store(path):
            if path.resolve() == folder.resolve():
                raise ConfigError("source", word, "another store than the one to import into")
            others.append(_Store(stack.enter_context(PageStore(path, readonly=True))))
        elif path.is_file() and is_warc(path):
            warcs.append(word)
        else:
            if not path.exists():
                raise CommandError(f"{path}: {os.strerror(errno.ENOENT)}")
            raise ConfigError("source", word, "a WARC file, or a page store")
    return [WarcFiles(warcs), *others] if warcs else others

"""WARC files of any tool as a source, and their import."""

from __future__ import annotations

import os
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from tbloom.errors import ConfigError
from tbloom.pages import record, segments
from tbloom.pages.exchange import responses
from tbloom.pages.exchange.content import Content
from tbloom.pages.exchange.importing import DAMAGED, PagesImported, Skipped, import_pages
from tbloom.pages.exchange.responses import Fields
from tbloom.pages.members import Damaged
from tbloom.pages.page import MAX_BYTES, Page, fingerprint_of
from tbloom.pages.segments import Found
from tbloom.pages.sync import PageStore

_OURS = f"software: {record.SOFTWARE}".encode()
#: The longest warcinfo that is read.
_MAX_INFO = 1 << 16
#: The longest body that is imported, if nothing else is said.
MAX_BODY = 1 << 27
_METHOD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+) ")
#: Bytes of a request in which its method stands.
_METHOD_BYTES = 32
#: Requests that are remembered: the response is near.
_REQUESTS = 100


def import_warc(
    store: PageStore,
    *files: str | os.PathLike[str] | BinaryIO,
    progress: Callable[[int, int | None], object] | None = None,
    max_body: int = MAX_BODY,
) -> PagesImported:
    """Stores the pages of WARC files, except those that the store has, fetched at the same time or later.

    After an interruption, the same import goes on. Damaged records are skipped, and listed in the result.

    :param files: paths, or files opened to read bytes; compressed with gzip or zstd, or not.
    :param progress: called from time to time with the number of bytes that are done, and their total; None where it is
        not known.
    :param max_body: pages with a longer body (in bytes) are skipped, and counted; 128 MB. Their content is not kept in
        memory.
    :raises ConfigError: where one is no WARC file; then nothing has changed.
    :raises OSError: where one can't be read, or the disk is full.
    """
    source = WarcFiles(files, max_body)

    def report() -> None:
        if progress is not None:
            progress(source.done, source.total)

    return import_pages(store, source, report)


class WarcFiles:
    """The pages in WARC files: plain, compressed record by record, or as a whole.

    What looks like a record behind damage is taken for one, even if it is a part of a damaged page's body.
    """

    def __init__(
        self, files: Iterable[str | os.PathLike[str] | BinaryIO], max_body: int = MAX_BODY
    ) -> None:
        """Opens each file once.

        :raises ConfigError: where one is no WARC file.
        :raises OSError: where one can't be read.
        """
        if not isinstance(max_body, int) or isinstance(max_body, bool) or max_body < 0:
            raise ConfigError("max_body", max_body, "a whole number of bytes")
        self._max_body = min(max_body, MAX_BYTES)
        self._files = [_File(one) for one in files]
        sizes = [one.size for one in self._files]
        self.total = None if None in sizes else sum(size or 0 for size in sizes)
        self._deletions = _Deletions(one.path for one in self._files if one.path is not None)
        self._before = 0
        self._content: Content | None = None

    @property
    def done(self) -> int:
        """Bytes that have been read."""
        return self._before + (self._content.done if self._content else 0)

    def __iter__(self) -> Iterator[Page | Skipped]:
        """The pages, file by file."""
        for file in self._files:
            with file.opened() as content:
                self._content = content
                yield from _Reader(file, content, self._deletions, self._max_body).pages()
                self._before, self._content = self.done, None


def is_warc(path: Path) -> bool:
    """True: the file begins with a WARC record."""
    try:
        _File(path)
    except ConfigError:
        return False
    return True


class _File:
    """A file, by path or open."""

    def __init__(self, given: str | os.PathLike[str] | BinaryIO) -> None:
        self.path: Path | None = None
        self.size: int | None = None
        self._begun: Content | None = None
        if isinstance(given, str | os.PathLike):
            self.path, self.name = Path(given), os.fspath(given)
            with self.opened():
                self.size = self.path.stat().st_size
        else:
            self.name = str(getattr(given, "name", "the file"))
            self._begun = self._content_of(given)

    @contextmanager
    def opened(self) -> Iterator[Content]:
        """Its content from the start. Raises ConfigError."""
        if self._begun is not None:
            yield self._begun
        elif self.path is not None:
            with self.path.open("rb") as file:
                yield self._content_of(file)

    def _content_of(self, file: BinaryIO) -> Content:
        try:
            return Content(file)
        except Damaged as error:
            raise ConfigError("source", self.name, f"a WARC file ({error})") from None


class _Deletions:
    """Which pages were deleted, in files that are segments of a store; their fingerprints with the sequence number.

    The deletion may be in a later file of the slice, which is not given.
    """

    def __init__(self, paths: Iterable[Path]) -> None:
        self._found: dict[tuple[Path, bytes], int] = {}
        given = [path for path in paths if _is_segment(path)]
        slices = {(path.parent, segments.label_of(path.name)) for path in given}
        others = (path for folder, label in slices for path in folder.glob(f"{label}-*.warc.*"))
        for path in {*given, *filter(_is_segment, others)}:
            for one in segments.records(path, 0, path.stat().st_size):
                if isinstance(one, Found) and one.head.kind == "metadata":
                    key = path.parent, one.head.fingerprint
                    self._found[key] = max(one.head.sequence, self._found.get(key, 0))

    def has(self, path: Path | None, page: Page, sequence: str) -> bool:
        """True: the page was deleted later in the store that has this segment."""
        if path is None or not re.fullmatch(r"\d{1,19}", sequence):
            return False
        return int(sequence) < self._found.get((path.parent, fingerprint_of(page.address)), 0)


def _is_segment(path: Path) -> bool:
    return path.is_file() and segments.first_of(path).segment is not None


class _Reader:
    """The pages of a file, and what is skipped."""

    def __init__(self, file: _File, content: Content, deletions: _Deletions, max_body: int) -> None:
        self._file, self._content, self._deletions = file, content, deletions
        self._max_body = max_body
        #: The IDs of those warcinfo records that tbloom wrote.
        self._ours: set[str] = set()
        #: True for a GET: the last requests, by their IDs and those of their responses.
        self._requests: OrderedDict[str, bool] = OrderedDict()

    def pages(self) -> Iterator[Page | Skipped]:
        """The answers to GET, and what is skipped. A request stands before its response, or behind it."""
        waiting: tuple[Fields, Page] | None = None
        for fields, found in self._records():
            if isinstance(found, Page) and fields is not None:
                if waiting is not None:
                    yield self._answered(*waiting)
                waiting = fields, found
            else:
                yield found
        if waiting is not None:
            yield self._answered(*waiting)

    def _answered(self, fields: Fields, page: Page) -> Page | Skipped:
        """The page, if no request is known that is no GET."""
        known = [self._requests[one] for one in fields.concurrent if one in self._requests]
        return page if all(known) else Skipped("not GET")

    def _records(self) -> Iterator[tuple[Fields | None, Page | Skipped]]:
        while True:
            fields = None
            try:
                if (head := self._content.head()) is None:
                    return
                fields = Fields(head)
                block = self._block(fields)
                self._content.end()
            except Damaged as error:
                yield fields, self._damaged(error)
                if not self._content.resume():
                    return
                continue
            try:
                found = block if isinstance(block, Skipped) else self._page(fields, block)
            except Damaged as error:  # of this page only: the next record begins here
                found = self._damaged(error)
            del block  # a copy of the page
            yield fields, found

    def _damaged(self, error: Damaged) -> Skipped:
        return Skipped(DAMAGED, f"{self._file.name}: at {self._content.place}: {error}")

    def _block(self, fields: Fields) -> bytes | Skipped:
        """What the fields describe, if it may be a page; else it is passed over."""
        skipped = fields.skipped(self._max_body)
        if skipped is None:
            block = self._content.block(fields.length)
            digest = fields.get("WARC-Block-Digest")
            if not self._content.has_checksums and record.is_digest(digest, block) is False:
                raise Damaged("its digest is that of other bytes")
            return block
        length = fields.length
        if skipped.kind == "warcinfo" and length < _MAX_INFO:
            block = self._content.block(length)
            if any(line.startswith(_OURS) for line in block.splitlines()):
                self._ours.add(fields.get("WARC-Record-ID"))
            return skipped
        if skipped.kind == "request":
            start = self._content.block(min(length, _METHOD_BYTES))
            length -= len(start)
            if method := _METHOD.match(start):
                self._requests.update(dict.fromkeys(fields.concurrent, method[1] == b"GET"))
            while len(self._requests) > _REQUESTS:
                self._requests.popitem(last=False)
        self._content.skip(length)
        return skipped

    def _page(self, fields: Fields, block: bytes) -> Page | Skipped:
        sequence = fields.get(record.SEQUENCE)
        is_ours = bool(sequence) or fields.get("WARC-Warcinfo-ID") in self._ours
        page = responses.page_of(fields, block, self._max_body, is_ours=is_ours)
        if isinstance(page, Page) and self._deletions.has(self._file.path, page, sequence):
            return Skipped("deleted")
        return page

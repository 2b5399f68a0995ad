"""The sources of an import: WARC files of any tool, WACZ files, and other stores. Each yields responses, and what is skipped."""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from io import BufferedReader, RawIOBase
from pathlib import Path
from typing import BinaryIO, cast

from tbloom.errors import ConfigError, TBloomError
from tbloom.pages import record
from tbloom.pages.exchange import formats, responses, wacz
from tbloom.pages.exchange.newest import Newest, change_of
from tbloom.pages.exchange.responses import (
    DAMAGED,
    LONG_HEAD,
    TOO_LONG,
    Fields,
    Limits,
    Response,
    Skipped,
)
from tbloom.pages.exchange.stream import Records, Trailing
from tbloom.pages.members import Damaged
from tbloom.pages.sync import PageStore

#: The kind of a source that can't be read.
UNREADABLE = "unreadable file"
_OURS = f"software: {record.SOFTWARE}".encode()
#: The longest warcinfo that is read.
_MAX_INFO = 1 << 16
_METHOD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+) ")
#: So many bytes of a request are read to find its method.
_METHOD_BYTES = 32
#: So many requests are remembered: the response is near.
_REQUESTS = 100

Given = str | os.PathLike[str] | BinaryIO


class _Unclosed(BufferedReader):
    """A buffer for a file of the caller, which stays open."""

    def close(self) -> None:
        """Do nothing."""


class Folder:
    """The sources in one folder, which may be segments of one store."""

    def __init__(self) -> None:
        self.sources = list[Source]()

    @cached_property
    def newest(self) -> Newest:
        """The last change of each address in the segments. Raises OSError if there is no room for it."""
        return Newest(records for source in self.sources for records in source.reread())


class Source:
    """A file or folder that was given."""

    def __init__(self, given: Given, limits: Limits) -> None:
        self._limits = limits
        #: Bytes of a file that were read.
        self.bytes_read: int = 0
        self._path: Path | None = None
        self._file: BinaryIO | None = None
        if isinstance(given, str | os.PathLike):
            self._path, self._name = Path(given), os.fspath(given)
        else:
            self._file, self._name = given, str(getattr(given, "name", "the file"))
            self._begin = given.tell() if given.seekable() else None
        #: The folder that it is in; None for an opened file whose name is no path, such as ``<stdin>``.
        self.parent: Path | None = None
        path: object = self._path or getattr(given, "name", None)
        if isinstance(path, str | bytes | os.PathLike):
            path = Path(os.fsdecode(path))
            if path == self._path or path.exists():
                self.parent = Path(os.path.realpath(path.parent))
        self.folder = Folder()

    def __iter__(self) -> Iterator[Response | Skipped]:
        """Yield the responses, and what is skipped. If the source can't be read, that comes last."""
        try:
            if self._path and self._path.is_dir():
                yield from self._of_store(self._path)
            else:
                yield from self._of_files()
        except (OSError, TBloomError, Damaged) as error:
            yield self._unreadable(self._name, error)

    @property
    def _is_pipe(self) -> bool:
        """Return True if it can be read only once."""
        if self._file:
            return self._begin is None
        return self._path is not None and not self._path.is_file()

    def reread(self) -> Iterator[Records]:
        """Yield the records of its files, to read them an additional time, if they can be read twice."""
        if self._is_pipe:
            return
        at = self._file.tell() if self._file else 0
        if self._file:
            self._file.seek(self._begin or 0)
        with suppress(OSError, Damaged), self._opened() as file:
            for one in self._files(file):
                if not isinstance(one, Skipped):
                    with suppress(Damaged):
                        yield Records(one[1], self._limits.head // 4)
        if self._file:
            self._file.seek(at)

    @contextmanager
    def _opened(self) -> Iterator[BufferedReader]:
        if self._file:
            yield _Unclosed(cast("RawIOBase", self._file))
        elif self._path:
            with self._path.open("rb") as file:
                yield file

    def _files(
        self, file: BufferedReader
    ) -> Iterator[tuple[str, BufferedReader, wacz.Member | None] | Skipped]:
        """Yield the name and content of each WARC file in a file."""
        if not file.peek(1).startswith(wacz.STARTS):
            yield self._name, file, None
            return
        for member in wacz.members(file):
            if isinstance(member, wacz.Member):
                yield f"{self._name}: {member.name}", BufferedReader(member), member
            else:
                yield self._unreadable(f"{self._name}: {member[0]}", member[1])

    def _of_files(self) -> Iterator[Response | Skipped]:
        with self._opened() as file:
            for one in self._files(file):
                if isinstance(one, Skipped):
                    yield one
                    continue
                name, raw, member = one
                try:
                    records = Records(raw, self._limits.head // 4)
                except Damaged as error:
                    is_brotli = name.lower().endswith(".br")
                    yield self._unreadable(name, formats.BROTLI if is_brotli else error)
                    continue
                damaged = 0
                for found in _Reader(name, records, self._limits, is_pipe=self._is_pipe).pages():
                    yield found
                    damaged += isinstance(found, Skipped) and found.kind == DAMAGED
                    if self._path and file.seekable():
                        self.bytes_read = file.tell()
                if member and member.fault and not damaged:
                    yield Skipped(DAMAGED, f"{name}: {member.fault}")

    def _of_store(self, path: Path) -> Iterator[Response | Skipped]:
        """Yield the pages of another store."""
        try:
            store = PageStore(path, readonly=True)
        except ConfigError:
            raise Damaged("it is a folder without a page store: give its files") from None
        with store:
            for page in store.pages():
                is_long = len(page.body) > self._limits.body
                yield Skipped(TOO_LONG) if is_long else Response(page)

    def _unreadable(self, name: str, why: object) -> Skipped:
        if isinstance(why, OSError):
            why = why.strerror or why
        return Skipped(UNREADABLE, f"{name}: {why}")


class _Reader:
    """Reads the pages of one WARC file."""

    def __init__(self, name: str, records: Records, limits: Limits, *, is_pipe: bool) -> None:
        self._name, self._records, self._limits = name, records, limits
        self._is_pipe = is_pipe
        #: True: tbloom wrote the records.
        self._is_ours = False
        #: The last requests: the IDs of each and of its response, and True for a GET.
        self._requests = deque[tuple[list[str], bool]](maxlen=_REQUESTS)

    def pages(self) -> Iterator[Response | Skipped]:
        """Yield the responses to GET, and what is skipped. A request stands before its response, or after it."""
        waiting: tuple[Fields, Response] | None = None
        for fields, found in self._all():
            if isinstance(found, Response) and fields is not None:
                if waiting is not None:
                    yield self._if_get(*waiting)
                waiting = fields, found
            else:
                yield found
        if waiting is not None:
            yield self._if_get(*waiting)

    def _if_get(self, fields: Fields, response: Response) -> Response | Skipped:
        """Return the response, unless its request is known and no GET."""
        own = {*fields.concurrent}
        is_get = all(is_get for ids, is_get in self._requests if not own.isdisjoint(ids))
        return response if is_get else Skipped("not GET")

    def _all(self) -> Iterator[tuple[Fields | None, Response | Skipped]]:
        """Yield the fields of each record and what became of it; without fields, the places that can't be read."""
        if before := self._records.before:
            yield None, Skipped(DAMAGED, f"{self._name}: {before}")
        while True:
            try:
                if (head := self._records.head()) is None:
                    return
                fields = Fields(head)
                found = self._skipped(fields)
                block = b"" if found else self._records.block(fields.length)
                try:
                    end = self._records.end()
                except Trailing:
                    yield fields, found or self._page(fields, block)
                    raise
                yield fields, found or self._page(fields, block, end)
            except Damaged as error:
                damaged = self._damaged(str(error))
                why = (
                    f"read on at {self._records.position}"
                    if self._records.find_next()
                    else "what follows was not read"
                )
                yield None, damaged._replace(where=f"{damaged.where}; {why}")

    def _damaged(self, why: str) -> Skipped:
        return Skipped(DAMAGED, f"{self._name}: at {self._records.position}: {why}")

    def _skipped(self, fields: Fields) -> Skipped | None:
        """Skip the record if it can't be a page, and return why; None if it may be one."""
        skipped, length = fields.skipped(self._limits), fields.length
        if self._records.is_long:
            skipped = Skipped(LONG_HEAD)
        if skipped is None:
            return None
        if skipped.kind == "warcinfo" and length < _MAX_INFO:
            block = self._records.block(length)
            self._is_ours = any(line.startswith(_OURS) for line in block.splitlines())
            return skipped
        if skipped.kind == "request":
            start = self._records.block(min(length, _METHOD_BYTES))
            length -= len(start)
            if method := _METHOD.match(start):
                self._requests.append((fields.concurrent, method[1] == b"GET"))
        self._records.skip(length)
        return skipped

    def _page(self, fields: Fields, block: bytes, end: bytes = record.END) -> Response | Skipped:
        """Return the page of a record, or why there is none. The next record can be read either way."""
        is_ours = self._is_ours or bool(fields.get(record.SEQUENCE))
        change = change_of(fields)
        if change and self._is_pipe:
            raise TBloomError("it is a segment of a page store, which is read twice: give its path")
        try:
            given, block = len(block), responses.whole(fields, block, end)
            page = responses.page_of(fields, block, self._limits, is_ours=is_ours)
        except Damaged as error:
            return self._damaged(str(error))
        if isinstance(page, Skipped):
            return page
        over, where = given - len(block), ""
        if over:
            where = self._damaged(
                f"its Content-Length is {over} too long; the page is stored"
            ).where
        digest = fields.get("WARC-Payload-Digest")
        return Response(
            page, digest, fields.refers_to if fields.is_revisit else None, where, change
        )

"""Reads the records of WARC files of any tool with FastWARC. It stops at damage; here, reading goes on behind it."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from io import SEEK_END
from tempfile import TemporaryFile
from typing import BinaryIO, NamedTuple
from zipfile import ZIP_STORED, BadZipFile, ZipFile

from fastwarc.warc import ArchiveIterator, WarcRecord

from tbloom.pages.message import is_whole
from tbloom.pages.page import Pairs

Given = str | os.PathLike[str] | BinaryIO
#: The limit of a record's fields (bytes). Parsed, they take a hundred times as much memory.
MAX_FIELDS = 1 << 16
#: How a gzip member, a zstd frame and a record begin. Only what a file has at its start is looked for behind damage, because
#: pages may hold the others. A record may begin within a line, where the one before it was cut.
_GZIP, _ZSTD, _PLAIN = rb"\x1f\x8b\x08", rb"\x28\xb5\x2f\xfd", rb"WARC/\d\.\d+[ \t]*\r?\n"
_DICTIONARY = b"\x5d\x2a\x4d\x18"
_STARTS = {b"\x1f\x8b": _GZIP, b"\x28\xb5\x2f\xfd": _ZSTD, _DICTIONARY: _ZSTD, b"WARC/": _PLAIN}
_ANY_START = b"|".join([_GZIP, _ZSTD, _PLAIN])
#: The longest dictionary of zstd frames that is given again (bytes).
_MAX_DICTIONARY = 1 << 24
#: Bytes that are searched at once for such a start, and how far one may reach beyond them.
_PIECE, _OVER = 1 << 16, 1 << 7
#: Behind damage, bytes are read again: at most so many of a file, and so many times its length, because a wrong length costs
#: one reading of all that follows. Without a limit, a small file may take hours.
_MAX_REREAD, _REREADINGS = 1 << 29, 8
#: FastWARC's error where a record should begin.
_NO_RECORD = "Invalid WARC header"
_ZIP_STARTS = (b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08")
#: A file's head in a ZIP file has so many bytes, the last of which are the lengths of what follows (APPNOTE.TXT 6.3).
_ZIP_HEAD = 30
_ENCRYPTED = 1
_IS_WARC = re.compile(r"\.w?arc(\.\w+)?$", re.IGNORECASE)
_REPAIR = "repair it with zip -FF FILE --out NEW first"
#: The errors of zipfile for arbitrary bytes.
_ZIP_ERRORS = (BadZipFile, EOFError, NotImplementedError, RuntimeError, ValueError)
_ONCE = ("warc-record-id", "warc-target-uri", "warc-date", "content-length")
#: Lengths have fewer digits; so many characters of a wrong value are shown.
_DIGITS, _SHOWN = 19, 40


class Unreadable(Exception):
    """A file that can't be imported."""


class Damaged(Exception):
    """A record that can't be read."""


class Fields:
    """The named fields of a record."""

    def __init__(self, given: WarcRecord) -> None:
        """Raise Damaged if they can't be those of one record."""
        pairs = given.headers.items_bytes()
        try:
            self.pairs: Pairs = tuple((name.decode(), value.decode()) for name, value in pairs)
        except UnicodeDecodeError:
            self.pairs = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in pairs)  # fmt: skip
        self._known = dict[str, str]()
        for name, value in self.pairs:
            known = name.lower()
            # A head that is cut is followed by another record's. An equal field twice is none, except the first of most heads.
            if known == "warc-type" and known in self._known:
                raise Damaged("another record begins within its header")
            if self._known.setdefault(known, value) != value and known in _ONCE:
                raise Damaged("it has a field twice, with two values")
        length = self.get("Content-Length")
        self.length: int = given.content_length
        # FastWARC takes anything that is no length for 0.
        if not (length.isdecimal() and len(length) < _DIGITS and int(length) == self.length):
            raise Damaged(f"its Content-Length is {length[:_SHOWN]!r}")

    def get(self, name: str) -> str:
        """Return the value of a field; empty if there is none."""
        return self._known.get(name.lower(), "")

    @property
    def concurrent(self) -> list[str]:
        """The ID of the record, and those of the records of the same request and response."""
        names = {"warc-record-id", "warc-concurrent-to"}
        return [value for name, value in self.pairs if name.lower() in names and value]


class Record(NamedTuple):
    """A record, and as much of its block as was wanted."""

    fields: Fields
    block: bytes
    #: Whether it has a digest, and that is right; None: it has none, or the block was not read.
    is_whole: bool | None
    #: The file and the offset.
    where: str


class Damage(NamedTuple):
    """A place that can't be read."""

    where: str


class _Stop(NamedTuple):
    """Damage behind which FastWARC does not read on."""

    why: str
    #: The next record begins there or later.
    offset: int


class Archive:
    """A WARC file, or one in a WACZ file."""

    def __init__(
        self,
        file: BinaryIO,
        name: str,
        wanted: Callable[[Fields], int],
        begin: int,
        end: int = sys.maxsize,
    ) -> None:
        """``wanted`` returns how many bytes of a record's block are read."""
        self.name = name
        self._file, self._wanted = file, wanted
        self.begin, self._end = begin, end
        start = self.bytes_at(begin, 8)
        found = (pattern for first, pattern in _STARTS.items() if start.startswith(first))
        self._starts = re.compile(next(found, _ANY_START))
        self.dictionary: bytes = b""
        size = len(start) + int.from_bytes(start[4:], "little")
        if start.startswith(_DICTIONARY) and size <= _MAX_DICTIONARY:
            self.dictionary = self.bytes_at(begin, size)
        #: The offset up to which the file was read, and the error that ended this.
        self.bytes_read: int = begin
        self.error: OSError | None = None
        self._stop: _Stop | None = None
        self._is_empty, self._read, self._reread = True, 0, 0

    def bytes_at(self, offset: int, size: int) -> bytes:
        """Return the bytes at an offset; fewer at the end."""
        self._file.seek(offset)
        return self._file.read(max(0, min(size, self._end - offset)))

    def records(self) -> Iterator[Record | Damage]:
        """Yield the records. Raise Unreadable if there is none. ``error`` says whether the file could not be read on."""
        run = self._run(self.begin)
        while True:
            yield from run
            if self._stop is None:
                break
            why, offset = self._stop
            first = None
            while first is None and (offset := self._find(offset)) >= 0:
                run = self._run(offset)
                first = next(run, None)
                offset += 1
            if first is None and self._is_empty:
                raise Unreadable(f"nothing of it can be read ({why})")
            on = f"read on at {offset - 1 - self.begin}" if first else "what follows was not read"
            yield Damage(f"{self.name}: {why}; {on}")
            if first is None:
                break
            yield first
        if self._is_empty and self.error is None:
            raise Unreadable("it has no WARC record")

    def _run(self, offset: int) -> Iterator[Record]:
        """Yield the records from an offset on, up to damage or the end. Each waits for the next: behind a wrong length is none."""
        self._stop, view = None, _View(self, offset)
        # Not a name, which would keep a long block in memory while its page is stored.
        held = list[Record]()
        try:
            found = ArchiveIterator(view, parse_http=False, max_header_len=MAX_FIELDS)  # type: ignore[arg-type]
            while (given := next(found, None)) is not None:
                if held:
                    yield held.pop()
                offset = view.origin + given.stream_pos
                held.append(self._record(given, offset))
            if held:
                yield held.pop()
        except Damaged as error:
            self._stop = _Stop(f"at {offset - self.begin}: {error}", offset + 1)
        except OSError as error:
            at = offset - self.begin
            if not held:
                why = "no WARC record begins there" if str(error) == _NO_RECORD else f"{error}"
                self._stop = _Stop(f"at {at}: {why}", offset + 1)
            elif str(error) == _NO_RECORD and not held[0].is_whole:
                why = f"at {at}: no record follows where it should end"
                self._stop = _Stop(why, offset + 1)
            else:
                # A record in the body of a whole one is none of the file's.
                over = held[0].fields.length if self._starts.pattern == _PLAIN else 1
                yield held.pop()
                why = f"behind the record at {at}: {error}"
                self._stop = _Stop(why, offset + over)
        if self.error is not None:
            self._stop = None
        if self._stop is not None:
            self._reread += max(0, view.at - self._stop.offset) + self._read

    def _record(self, given: WarcRecord, offset: int) -> Record:
        fields = Fields(given)
        size = min(self._wanted(fields), fields.length)
        block = given.reader.read(size) if size else b""
        self._read = len(block) + given.reader.consume()
        if self._read < fields.length:
            raise Damaged("it is cut")
        known = is_whole(fields.get, block) if size == fields.length else None
        where, self._is_empty = f"{self.name}: at {offset - self.begin}", False
        return Record(fields, block, known, where)

    def _find(self, offset: int) -> int:
        """Return the offset at which a member, frame or record may begin, not before this one; -1: none."""
        most = _MAX_REREAD + _REREADINGS * (self.bytes_read - self.begin)
        while self._reread < most and (data := self.bytes_at(offset, _PIECE + _OVER)):
            if found := self._starts.search(data):
                self._reread += _PIECE
                return offset + found.start()
            offset += _PIECE
        return -1


class _View:
    """The bytes of an archive from an offset on, as FastWARC reads them."""

    def __init__(self, archive: Archive, offset: int) -> None:
        self._archive, self.at = archive, offset
        #: Frames behind damage need the dictionary, too.
        self._front = b"" if offset == archive.begin else archive.dictionary
        #: The offset of FastWARC's position 0.
        self.origin: int = offset - len(self._front)

    def tell(self) -> int:
        """Return 0: FastWARC counts from there, and uses a dictionary only if that is the place."""
        return 0

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes."""
        if data := self._front[:size]:
            self._front = self._front[size:]
            return data
        try:
            data = self._archive.bytes_at(self.at, size)
        except OSError as error:  # FastWARC would call it damage
            self._archive.error = error
        self.at += len(data)
        self._archive.bytes_read = max(self._archive.bytes_read, self.at)
        return data


@contextmanager
def opened(given: Given) -> Iterator[BinaryIO]:
    """Open a file. Copy a pipe into a temporary file: FastWARC panics without an offset, and behind damage, bytes are read again."""
    with ExitStack() as stack:
        if isinstance(given, str | os.PathLike):
            given = stack.enter_context(open(given, "rb"))  # noqa: PTH123
        if not given.seekable():
            copy = stack.enter_context(TemporaryFile())
            shutil.copyfileobj(given, copy)
            copy.seek(0)
            given = copy
        yield given


def archives_in(
    file: BinaryIO, name: str, wanted: Callable[[Fields], int]
) -> Iterator[Archive | Unreadable]:
    """Yield the WARC file, or those in a WACZ or another ZIP file, which has them without further compression."""
    begin = file.tell()
    start = file.read(len(_ZIP_STARTS[0]))
    if start not in _ZIP_STARTS:
        yield Archive(file, name, wanted, begin)
        return
    try:
        with ZipFile(file) as whole:
            infos = sorted(whole.infolist(), key=lambda info: info.header_offset)
    except _ZIP_ERRORS as error:
        why = f"it is a ZIP or WACZ file that is damaged or cut ({error}): {_REPAIR}"
        raise Unreadable(why) from None
    # Files that overlap, as in a ZIP bomb, end where the next one begins.
    ends = [*[info.header_offset for info in infos[1:]], sys.maxsize]
    found = [pair for pair in zip(infos, ends, strict=True) if _IS_WARC.search(pair[0].filename)]
    if not found:
        raise Unreadable(
            "it is a ZIP file without WARC files: extract it with unzip first, and import what it holds"
        )
    last = file.seek(0, SEEK_END)
    for info, end in found:
        inside = f"{name}: {info.filename}"
        # The directory does not say where a file's bytes begin.
        file.seek(info.header_offset if 0 <= info.header_offset < last else last)
        head = file.read(_ZIP_HEAD)
        if info.compress_type != ZIP_STORED or info.flag_bits & _ENCRYPTED:
            yield Unreadable(f"{inside}: it is compressed or encrypted: extract it with 7z x first")
        elif len(head) < _ZIP_HEAD or not head.startswith(_ZIP_STARTS[0]):
            yield Unreadable(f"{inside}: it is not where the ZIP file says: {_REPAIR}")
        else:
            at = info.header_offset + _ZIP_HEAD
            at += int.from_bytes(head[26:28], "little") + int.from_bytes(head[28:], "little")
            yield Archive(file, inside, wanted, at, min(at + info.compress_size, end))

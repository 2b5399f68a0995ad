"""Reads the records of WARC files of any tool with FastWARC. It stops at damage; here, reading goes on behind it.

Where FastWARC ends without an error, its records must fill the file (see ``_Reader``): its word alone is not taken for the end.
"""

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

from tbloom.pages.members import Damaged, zstd
from tbloom.pages.message import digests_of
from tbloom.pages.page import Pairs
from tbloom.pages.unpacking import Unpacked, dictionary_in

Given = str | os.PathLike[str] | BinaryIO
#: The limit of a record's fields (bytes). Parsed, they take a hundred times as much memory.
MAX_FIELDS = 1 << 16
#: How a gzip member, a zstd frame and a record begin. Only what a file has at its start is looked for behind damage, because
#: pages may hold the others. A record may begin within a line, where the one before it was cut.
_GZIP, _ZSTD, _PLAIN = rb"\x1f\x8b\x08", rb"\x28\xb5\x2f\xfd", rb"WARC/\d\.\d+[ \t]*\r?\n"
_STARTS = {
    b"\x1f\x8b": _GZIP,
    b"\x28\xb5\x2f\xfd": _ZSTD,
    b"\x5d\x2a\x4d\x18": _ZSTD,
    b"WARC/": _PLAIN,
}
_ANY_START = b"|".join([_GZIP, _ZSTD, _PLAIN])
#: Bytes that are searched at once for such a start, and how far one may reach beyond them.
_PIECE, _OVER = 1 << 16, 1 << 7
#: Behind damage, bytes are read again: at most so many of a file, and so many times its length, because a wrong length costs
#: one reading of all that follows. Without a limit, a small file may take hours.
_MAX_REREAD, _REREADINGS = 1 << 29, 8
#: FastWARC's error where a record should begin; and ours where it says nothing.
_NO_RECORD, _EARLY = "Invalid WARC header", "FastWARC ended there, and the file does not"
_ZIP_STARTS = (b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08")
#: A file's head in a ZIP file has so many bytes, the last of which are the lengths of what follows (APPNOTE.TXT 6.3).
_ZIP_HEAD = 30
_ENCRYPTED = 1
#: Crawlers that were killed leave ``.open`` behind the name, and downloads ``.part`` or a number.
_IS_ARCHIVE = re.compile(r"\.(wacz|zip|w?arc(\.\w+)?(\.(open|part|\d+))?)$", re.IGNORECASE)
_IS_ZIP = re.compile(r"\.(wacz|zip)$", re.IGNORECASE)
_REPAIR = "repair it with zip -FF FILE --out NEW first"
#: The errors of zipfile for arbitrary bytes.
_ZIP_ERRORS = (BadZipFile, EOFError, NotImplementedError, RuntimeError, ValueError)
#: The length in letters that FastWARC does not know: names may be small or large (ISO 28500).
_LENGTH = re.compile(rb"(?im)^(?!(?-i:Content-Length))content-length(?=[ \t]*:)")
_ZERO = re.compile(rb"\0")
_ONCE = ("warc-record-id", "warc-target-uri", "warc-date", "content-length")
#: Lengths have fewer digits; so many characters of a wrong value are shown.
_DIGITS, _SHOWN = 19, 40


class Unreadable(Exception):
    """A file that can't be imported."""


class Fields:
    """The named fields of a record."""

    def __init__(self, given: WarcRecord) -> None:
        """Raise Damaged if they can't be those of one record."""
        pairs = given.headers.items_bytes()
        try:
            self.pairs: Pairs = tuple([(name.decode(), value.decode()) for name, value in pairs])
        except UnicodeDecodeError:
            self.pairs = tuple([(name.decode("latin-1"), value.decode("latin-1")) for name, value in pairs])  # fmt: skip
        self._known = dict[str, str]()
        for name, value in self.pairs:
            known = name.lower()
            if known not in self._known:
                self._known[known] = value
            # A head that is cut is followed by another record's. An equal field twice is none, except the first of most heads.
            elif known == "warc-type":
                raise Damaged("another record begins within its header")
            elif known in _ONCE and self._known[known] != value:
                raise Damaged("it has a field twice, with two values")
        #: The type of the record, in small letters; empty if it has none.
        self.kind: str = self.get("WARC-Type").lower()
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
    #: What its digests say (see ``digests_of``), if the whole block was read.
    is_whole: bool | None
    is_denied: bool
    #: The file and the offset.
    where: str


class _Reader:
    """FastWARC's records, each with the offset at which it begins, and what our account says of them.

    The records must follow each other, and the last one must end where the input does, with nothing but padding in between.
    """

    def __init__(self, source: Unpacked) -> None:
        self._source = source
        self._records, self._base = _records_in(source), 0
        #: The offset at which the last record ends.
        self.end = 0

    def next(self) -> tuple[WarcRecord, int] | None:
        """Return the next record and its offset; None at the end. Raise Damaged or OSError if what follows can't be read."""
        source = self._source
        try:
            given = next(self._records, None)
        except OSError:
            begin = source.not_blank_behind(self.end)
            if begin < 0:
                return None
            if source.search(_ZERO, self.end, begin) < 0:
                raise
            return self._again(begin, begin)  # FastWARC takes no zeros for padding
        if given is None:
            begin, damage = source.not_blank_behind(self.end), source.damage
            if begin >= 0 and (damage is None or begin < damage.begin):
                raise Damaged(_EARLY)
            return None
        begin = self._base + given.stream_pos
        if source.not_blank(self.end, begin) >= 0:
            raise Damaged(_EARLY)
        end = source.end_of_head(begin)
        if end < 0:
            raise Damaged("it is cut")
        if not given.content_length and source.search(_LENGTH, begin, end) >= 0:
            return self._again(begin, end)
        self.end = end + given.content_length
        return given, begin

    def _again(self, begin: int, end: int) -> tuple[WarcRecord, int] | None:
        """Let FastWARC begin again, with its name of the length between two offsets. Return the next record."""
        self._source.give_again(begin, end, lambda head: _LENGTH.sub(b"Content-Length", head))
        self._records, self._base, self.end = _records_in(self._source), begin, begin
        return self.next()


def _records_in(source: Unpacked) -> Iterator[WarcRecord]:
    return iter(ArchiveIterator(source, parse_http=False, max_header_len=MAX_FIELDS, stream_detect=False))  # type: ignore[arg-type]  # fmt: skip


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
        self.begin: int = begin
        self._end = end
        #: The offset up to which the file was read.
        self.bytes_read: int = begin
        start = self.bytes_at(begin, 8)
        found = (pattern for first, pattern in _STARTS.items() if start.startswith(first))
        self._starts = re.compile(next(found, _ANY_START))
        self._dictionary: zstd.ZstdDict | None = None
        self._is_empty = True
        #: The damage behind which no record was found yet, in words; and an offset: the next record begins there or later.
        self._damage, self._next = "", begin
        #: Bytes behind damage that were read once more.
        self._reread = 0

    def bytes_at(self, offset: int, size: int) -> bytes:
        """Return the bytes at an offset; fewer at the end."""
        self._file.seek(offset)
        data = self._file.read(max(0, min(size, self._end - offset)))
        self.bytes_read = max(self.bytes_read, offset + len(data))
        return data

    def records(self) -> Iterator[Record | str]:
        """Yield the records, and in words the places that can't be read. Raise Unreadable if nothing can be read."""
        try:
            self._dictionary = dictionary_in(lambda size: self.bytes_at(self.begin, size))
        except ValueError as error:
            raise Unreadable(f"Invalid dictionary: {error}") from None
        while self._next >= 0:
            yield from self._run(self._next)
        if self._is_empty:
            why = f"nothing of it can be read ({self._damage})"
            raise Unreadable(why if self._damage else "it has no WARC record")
        if self._damage:
            yield f"{self.name}: {self._damage}; what follows was not read"

    def _run(self, offset: int) -> Iterator[Record | str]:
        """Yield the records from an offset on, up to damage or the end."""
        source = Unpacked(self.bytes_at, offset, self._dictionary)
        reader, at, begin = _Reader(source), offset, 0
        # Each waits for the next, because behind a wrong length is none. A name would keep a long block in memory while its page
        # is stored.
        held = list[Record]()
        self._next = -1
        try:
            while (found := reader.next()) is not None:
                yield from self._sound(held, offset)
                given, begin = found
                at = source.where(begin)
                held.append(self._record(given, at))
                del found, given
            damage = source.damage
            stop = damage and (damage.offset, f"at {damage.offset - self.begin}: {damage.why}")
        except (Damaged, OSError) as error:
            if getattr(error, "errno", None) is not None:  # of the disk, and not of FastWARC
                yield from self._sound(held, offset)
                raise
            is_none = str(error) == _NO_RECORD
            why = "no WARC record begins there" if is_none else error
            stop = at, f"{'behind the record ' if held else ''}at {at - self.begin}: {why}"
            if held and held[0].is_whole:  # a record in its body is none of the file's
                stop = max(at, source.where(reader.end) - 1), stop[1]
            elif is_none:
                held.clear()
        yield from self._sound(held, offset)
        if stop:
            self._damage = self._damage or stop[1]
            self._reread += source.given - begin
            self._next = self._find(stop[0] + 1)

    def _sound(self, held: list[Record], offset: int) -> Iterator[Record | str]:
        """Yield the record that is held, if any. If it is the first one behind damage, which is read on at this offset, say so."""
        if held:
            if self._damage:
                yield f"{self.name}: {self._damage}; read on at {offset - self.begin}"
            self._damage, self._is_empty = "", False
            yield held.pop()

    def _record(self, given: WarcRecord, offset: int) -> Record:
        fields = Fields(given)
        size = min(self._wanted(fields), fields.length)
        block = given.reader.read(size) if size else b""
        if len(block) + given.reader.consume() < fields.length:
            raise Damaged("it is cut")
        is_all = size == fields.length
        says = digests_of(fields.get, block, fields.kind) if is_all else (None, False)
        return Record(fields, block, *says, f"{self.name}: at {offset - self.begin}")

    def _find(self, offset: int) -> int:
        """Return the offset at which a member, frame or record may begin, not before this one; -1: none."""
        most = _MAX_REREAD + _REREADINGS * (self.bytes_read - self.begin)
        while self._reread < most and (data := self.bytes_at(offset, _PIECE + _OVER)):
            if found := self._starts.search(data):
                self._reread += _PIECE
                return offset + found.start()
            offset += _PIECE
        return -1


class Source:
    """A file that may be read more than once. A pipe is copied into a temporary file, because behind damage bytes are read again."""

    def __init__(self, given: Given) -> None:
        #: The path; empty: an open file was given.
        self.path: str = os.fspath(given) if isinstance(given, str | os.PathLike) else ""
        self.name: str = self.path or f"{getattr(given, 'name', 'the file')}"
        self._file = None if isinstance(given, str | os.PathLike) else given
        self._copies = ExitStack()
        self._begin: int | None = None

    @contextmanager
    def opened(self) -> Iterator[BinaryIO]:
        """Open the file at its begin."""
        with ExitStack() as stack:
            file = self._file or stack.enter_context(open(self.path, "rb"))  # noqa: PTH123
            if not file.seekable():
                self._file = self._copies.enter_context(TemporaryFile())
                shutil.copyfileobj(file, self._file)
                self._begin, file = 0, self._file
            if self._begin is None:
                self._begin = file.tell()
            file.seek(self._begin)
            yield file

    def close(self) -> None:
        """Remove the copy."""
        self._copies.close()


def archives_in(
    file: BinaryIO, name: str, wanted: Callable[[Fields], int]
) -> Iterator[Archive | Unreadable]:
    """Yield the WARC file, or those in a WACZ or another ZIP file, which has them without further compression."""
    begin = file.tell()
    if file.read(len(_ZIP_STARTS[0])) not in _ZIP_STARTS:
        yield Archive(file, name, wanted, begin)
        return
    try:
        with ZipFile(file) as whole:
            infos = sorted(whole.infolist(), key=lambda info: info.header_offset)
    except _ZIP_ERRORS as error:
        why = f"it is a ZIP or WACZ file that is damaged or cut ({error}): {_REPAIR}"
        raise Unreadable(why) from None
    if infos and infos[0].header_offset > begin:
        where = f"before offset {infos[0].header_offset - begin}"
        yield Unreadable(
            f"{name}: its directory leaves out what stands {where}: import the files that it was made of"
        )
    # Files that overlap, as in a ZIP bomb, end where the next one begins.
    ends = [*[info.header_offset for info in infos[1:]], sys.maxsize]
    found = [(info, end) for info, end in zip(infos, ends, strict=True) if _IS_ARCHIVE.search(info.filename)]  # fmt: skip
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
        if _IS_ZIP.search(info.filename):
            yield Unreadable(f"{inside}: it is a file of files: extract it first")
        elif info.compress_type != ZIP_STORED or info.flag_bits & _ENCRYPTED:
            yield Unreadable(f"{inside}: it is compressed or encrypted: extract it with 7z x first")
        elif len(head) < _ZIP_HEAD or not head.startswith(_ZIP_STARTS[0]):
            yield Unreadable(f"{inside}: it is not where the ZIP file says: {_REPAIR}")
        else:
            at = info.header_offset + _ZIP_HEAD
            at += int.from_bytes(head[26:28], "little") + int.from_bytes(head[28:], "little")
            yield Archive(file, inside, wanted, at, min(at + info.compress_size, end))

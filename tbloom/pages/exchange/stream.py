"""The records of a WARC file of any tool, read from its start to its end: plain, or compressed with gzip or zstd.

Neither warcio nor FastWARC reads them: after damage, these stop or miss records, and warcio reads neither zstd nor members
with several records. docs/benchmarks.md compares what each finds, and the time for a record.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from io import BufferedReader, BytesIO, RawIOBase
from typing import Any, BinaryIO, NamedTuple, cast

from tbloom.pages.exchange import formats
from tbloom.pages.members import ERRORS, Damaged, ZstdError, gzip_decompressor, zstd_decompressor
from tbloom.pages.record import END, MAX_HEAD

#: The start of a dictionary for all frames of a file (Zstandard Compression for WARC Files 1.0), and its limit (bytes).
_DICTIONARY, _MAX_DICTIONARY = b"\x5d\x2a\x4d\x18", 1 << 24
#: The start of a record; empty lines. The last form stands at the end of a file that is cut there.
_WARC, _BLANK = b"WARC/", (b"\r\n", b"\n", b"\r")
#: The first line of a record after damage, or where fields should be. Other bytes may precede it in its line.
_BEGINS = re.compile(rb"WARC/\d\.\d+[ \t]*\r?\n")
#: The fields that are kept of a long head: where the record ends, and which page of a store it replaces or deletes.
_KEPT = (b"content-length:", b"x-tbloom-")
_PIECE = 1 << 20
#: So many empty lines behind a record are kept with it, to be read again if its length is wrong.
_EMPTY_LINES = 1 << 12
#: The length of a member's start.
_MAGIC_BYTES = 4
#: So many compressed bytes are read at once, and searched for the next member after damage.
_COMPRESSED = 1 << 13
#: After damage, bytes are read again: as many as the file has, and so many more. Without a limit, a small file may take hours.
_REREAD_BYTES = 1 << 24


class Trailing(Damaged):
    """A whole record is followed by bytes that are no record."""


class _Compression(NamedTuple):
    """A compression whose files consist of members, one after the other."""

    #: For errors: the name of a member, and of the program that decompresses files.
    noun: str
    program: str
    #: The starts of members; the first is that of members with content.
    starts: tuple[bytes, ...]
    decompressor: Callable[[], Any]


_GZIP = _Compression("gzip member", "gunzip", (b"\x1f\x8b\x08",), gzip_decompressor)
_ZSTD = _Compression(
    "zstd frame",
    "zstd -d",
    (b"\x28\xb5\x2f\xfd", *(bytes([number]) + b"\x2a\x4d\x18" for number in range(0x50, 0x60))),
    zstd_decompressor,
)


def _compression_of(file: BufferedReader) -> _Compression | None:
    """Return the compression of a file; None if it has none that tbloom reads. Raise Damaged if its dictionary can't be read."""
    start = file.peek(len(_WARC))
    if not start.startswith(_DICTIONARY):
        return next((each for each in (_GZIP, _ZSTD) if start.startswith(each.starts)), None)
    size = int.from_bytes(file.read(8)[4:], "little")
    try:
        dictionary = file.read(min(size, _MAX_DICTIONARY))
        if dictionary.startswith(_ZSTD.starts[0]):
            dictionary = zstd_decompressor().decompress(dictionary, _MAX_DICTIONARY)
        zstd_decompressor(dictionary)
    except (ZstdError, ValueError) as error:
        raise Damaged(f"its Zstandard dictionary can't be read: {error}") from None
    return _ZSTD._replace(decompressor=partial(zstd_decompressor, dictionary))


class _Members(RawIOBase):
    """The content of the members of a compressed file."""

    def __init__(self, file: BufferedReader, compression: _Compression) -> None:
        self._file, self._compression = file, compression
        self._member: Any = None
        #: Compressed bytes that were read, but not decompressed; and those that the member was given last.
        self._rest, self._given = b"", b""
        self._is_open, self._is_new = False, True

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        """Do nothing: after damage, another buffer reads on."""

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = b""
        try:
            while not data and (self._is_open or self._begin()):
                data = self._read(len(buffer))
        except ERRORS as error:
            # If nothing of this member was read yet, the record before it is whole.
            raise Trailing(str(error)) if self._is_new else error from None
        self._is_new = not data
        buffer[: len(data)] = data
        return len(data)

    def _read(self, most: int) -> bytes:
        fresh = b""
        if self._member.needs_input:
            fresh, self._rest = self._rest or self._file.read1(_COMPRESSED), b""
            if not fresh:
                raise EOFError("it is cut")
            self._given = fresh
        data: bytes = self._member.decompress(fresh, most)
        if self._member.eof:
            self._rest, self._is_open = self._member.unused_data, False
        return data

    def _begin(self) -> bool:
        """Begin the next member. Return False if there is none. Zeros may follow the last one."""
        self._rest = self._rest.lstrip(b"\0")
        while len(self._rest) < _MAGIC_BYTES and (more := self._file.read1(_COMPRESSED)):
            self._rest = (self._rest + more).lstrip(b"\0")
        if not self._rest:
            return False
        self._given = self._rest
        if not self._rest.startswith(self._compression.starts):
            raise Trailing(f"no {self._compression.noun} follows where it should end")
        self._member, self._is_open, self._is_new = self._compression.decompressor(), True, True
        return True

    def find_next(self) -> None:
        """Go to the next member that begins a record, after the start of this one; to the end if there is none."""
        data, self._is_open = self._given[1:], False
        start = self._compression.starts[0]
        while True:
            more = self._file.read1(_COMPRESSED)
            data += more
            at = data.find(start)
            # Enough of the member's start is there to decide.
            while at >= 0 and (len(data) - at > _COMPRESSED or not more):
                if self._begins_record(data[at:]):
                    self._rest = data[at:]
                    return
                at = data.find(start, at + 1)
            if not more:
                self._rest = b""
                return
            data = data[at if at >= 0 else 1 - len(start) :]

    def _begins_record(self, member: bytes) -> bool:
        try:
            return bool(self._compression.decompressor().decompress(member, len(_WARC)) == _WARC)
        except ERRORS:
            return False


class _Content:
    """Content that can be read again from a mark."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        #: Bytes to be read again, and the offset of the mark in them.
        self._front, self._mark = BytesIO(), 0
        #: What was read after them since the mark.
        self._after = list[bytes]()

    def mark(self) -> None:
        """Set the mark at the current position."""
        self._mark = self._front.tell()
        if self._after:  # all of the front was read
            self._front, self._mark = BytesIO(), 0
            self._after.clear()

    def rewind(self) -> None:
        """Go back to the mark."""
        self._front.seek(self._mark)
        if self._after:
            self._front, self._mark = BytesIO(b"".join([self._front.read(), *self._after])), 0
            self._after.clear()

    def read(self, size: int) -> bytes:
        """Read the next bytes, as a file does."""
        data = self._front.read(size)
        if len(data) < size:
            self._after.append(self._stream.read(size - len(data)))
            data = data + self._after[-1] if data else self._after[-1]
        return data

    def readline(self, size: int) -> bytes:
        """Read the next line, as a file does."""
        line = self._front.readline(size)
        if len(line) < size and not line.endswith(b"\n"):
            self._after.append(self._stream.readline(size - len(line)))
            line += self._after[-1]
        return line


class Records:
    """The records of a file: call ``head``, then ``block`` or ``skip`` for what its fields describe, then ``end``.

    If one of these raises Damaged, call ``find_next`` to go on.
    """

    def __init__(self, file: BufferedReader, max_head: int) -> None:
        """Find the first record. Raise Damaged if there is none. ``max_head``: so many bytes of a head are kept."""
        self._max_head = max_head
        #: True: the current record's head is longer than ``max_head``.
        self.is_long: bool = False
        self._start = file.tell() if file.seekable() else 0
        if why := formats.recognize(file.peek(formats.START_BYTES)):
            raise Damaged(why)
        stream: BinaryIO = file
        self._members: _Members | None = None
        if compression := _compression_of(file):
            self._members = _Members(file, compression)
            stream = self._unbuffered(self._members)
        self._content = _Content(stream)
        #: Offsets in the decompressed content: of the current record, and of the next byte to read.
        self._begin = self._offset = 0
        #: The offset of the mark; the number of bytes that were read again.
        self._marked = self._reread = 0
        #: After damage: whether the compression can't be read on, and whether the record before it is whole.
        self._is_broken = self._is_trailing = False
        self._line = b""
        #: What is wrong before the first record; empty: nothing.
        self.before = self._find_first(file, compression)

    @property
    def position(self) -> str:
        """The offset of the current record, for errors."""
        return f"{self._begin} of its content" if self._members else f"{self._begin}"

    def _find_first(self, file: BufferedReader, compression: _Compression | None) -> str:
        """Read up to the first record. Return what is wrong before it. Raise Damaged if there is no record."""
        why = ""
        try:
            self._next_line()
            while self._line in _BLANK:
                self._set_mark()
                self._next_line()
            why = (
                formats.recognize_within(self._line, compression.program)
                if compression
                else formats.recognize(self._line)
            )
            is_empty = not self._line
        except Damaged:
            is_empty = False
        if why or is_empty:
            raise Damaged(why or "it is empty")
        if self._line.startswith(_WARC):
            return ""
        if not (compression is None and self._find_compressed(file)) and not self.find_next():
            raise Damaged(formats.NO_RECORD)
        return f"at 0: it does not begin with a record; read on at {self.position}"

    def _find_compressed(self, file: BufferedReader) -> bool:
        """Find a member in a file whose first bytes are missing or wrong. Return False if there is none."""
        if not file.seekable():
            return False
        for compression in (_GZIP, _ZSTD):
            file.seek(self._start)
            self._members, self._is_broken, self._offset = _Members(file, compression), True, 0
            if self.find_next():
                return True
        file.seek(self._start)
        self._members, self._content = None, _Content(file)
        self._offset = self._marked = 0
        return False

    def head(self) -> bytes | None:
        """Return the first line and the fields of the next record; None at the end.

        Of a head that is longer than ``max_head``, return its beginning and the fields in ``_KEPT``.
        """
        self._begin, self.is_long = self._offset - len(self._line), False
        self._set_mark()
        if not self._line:
            return None
        lines, size = list[bytes](), 0
        while self._line not in _BLANK:
            if size and _BEGINS.search(self._line):
                raise Damaged("another record begins within its header")
            size += len(self._line)
            self.is_long = size > self._max_head
            if not self.is_long or self._line[: len(_KEPT[0])].lower().startswith(_KEPT):
                lines.append(self._line)
            if size > MAX_HEAD:
                raise Damaged("its header has no end")
            self._next_line()
            if not self._line:
                raise Damaged("it is cut")
        return b"".join(lines)

    def block(self, size: int) -> bytes:
        """Return the next bytes."""
        try:
            data = self._content.read(size)
        except (*ERRORS, Trailing) as error:
            self._is_broken = True
            raise Damaged(str(error)) from None
        self._offset += len(data)
        if len(data) < size:
            raise Damaged("it is cut")
        return data

    def skip(self, size: int) -> None:
        """Skip the next bytes."""
        while size:
            size -= len(self.block(min(size, _PIECE)))
            if size:  # a long record is not kept to be read again
                self._set_mark()

    def end(self) -> bytes:
        """Return the empty lines that end a record. Raise Damaged if no record follows, or a checksum is wrong."""
        end, lines = b"", 0
        self._next_line()
        while self._line in _BLANK:
            end, lines = (end + self._line)[: len(END)], lines + 1
            if lines % _EMPTY_LINES == 0:
                self._set_mark()
            self._next_line()
        if self._line and not self._line.startswith(_WARC):
            why = "no record follows where it should end"
            if end != END:
                raise Damaged(why)
            self._is_trailing, self._begin = True, self._offset - len(self._line)
            raise Trailing(why)
        return end

    def find_next(self) -> bool:
        """Find the next member or line that begins a record, after damage. Return False at the end."""
        read = self._offset - self._marked
        if (
            not self._is_trailing
            and not self._is_broken
            and self._reread + read <= self._offset + _REREAD_BYTES
        ):
            self._reread += read
            self._offset = self._marked
            self._content.rewind()
        if not self._is_trailing:  # if it is, the last line may begin a record
            self._line = b"\n"
        self._is_trailing, begins = False, None
        while self._line and not (begins := _BEGINS.search(self._line)):
            try:
                if self._is_broken:
                    self._reopen()
                self._set_mark()
                self._next_line()
            except Damaged:
                continue
        self._line = self._line[begins.start() :] if self._line and begins else b""
        self._begin = self._offset - len(self._line)
        return bool(self._line)

    def _reopen(self) -> None:
        """Go to the next member."""
        self._is_broken = False
        stream: BinaryIO = BytesIO()
        if self._members is not None:
            self._members.find_next()
            stream = self._unbuffered(self._members)
        self._content = _Content(stream)

    def _unbuffered(self, raw: _Members) -> BinaryIO:
        return BufferedReader(cast("RawIOBase", raw))

    def _set_mark(self) -> None:
        self._content.mark()
        self._marked = self._offset

    def _next_line(self) -> None:
        try:
            self._line = self._content.readline(MAX_HEAD)
        except (*ERRORS, Trailing) as error:
            self._is_broken = True
            self._begin = self._offset if isinstance(error, Trailing) else self._begin
            raise (Trailing if isinstance(error, Trailing) else Damaged)(str(error)) from None
        self._offset += len(self._line)

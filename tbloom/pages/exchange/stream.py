"""The records of a WARC file of any tool, read from its start to its end: plain, or compressed with gzip or zstd.

They are read here, and not by warcio or FastWARC: behind damage, these stop or miss records, and warcio reads neither zstd
nor members with several records. docs/benchmarks.md has the cases, with what each finds, and the time for a record.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from io import BufferedReader, BytesIO, RawIOBase
from typing import Any, BinaryIO, NamedTuple, cast

from tbloom.pages.exchange import others
from tbloom.pages.members import ERRORS, Damaged, ZstdError, gzip_decompressor, zstd_decompressor
from tbloom.pages.record import END, MAX_HEAD

#: How the dictionary of all frames of a file begins (Zstandard Compression for WARC Files 1.0), and its most bytes.
_DICTIONARY, _MAX_DICTIONARY = b"\x5d\x2a\x4d\x18", 1 << 24
#: A line without anything in it; the last one at the end of a file that is cut there.
_WARC, _BLANK = b"WARC/", (b"\r\n", b"\n", b"\r")
#: How a record begins, behind damage or in place of fields; other bytes may stand before it in its line.
_BEGINS = re.compile(rb"WARC/\d\.\d+[ \t]*\r?\n")
_LENGTH = b"content-length:"
_PIECE = 1 << 20
#: How long the start of a member is.
_MAGIC_BYTES = 4
#: Compressed bytes that are read at once, and searched for the next member behind damage.
_COMPRESSED = 1 << 13
#: Bytes that may be read again behind damage, beside as many as the file has: or a small file may take hours.
_AGAIN = 1 << 24


class Trailing(Damaged):
    """Something else stands behind a record that is whole."""


class _Form(NamedTuple):
    """A compression whose files are members, one behind the other."""

    #: A member, and the program that decompresses files, in errors.
    noun: str
    program: str
    #: How a member begins, first with content.
    starts: tuple[bytes, ...]
    decompressor: Callable[[], Any]


_GZIP = _Form("gzip member", "gunzip", (b"\x1f\x8b\x08",), gzip_decompressor)
_ZSTD = _Form(
    "zstd frame",
    "zstd -d",
    (b"\x28\xb5\x2f\xfd", *(bytes([number]) + b"\x2a\x4d\x18" for number in range(0x50, 0x60))),
    zstd_decompressor,
)


def _form_of(file: BufferedReader) -> _Form | None:
    """The compression that the start of a file shows; None: it shows none that is read here. Raises Damaged."""
    start = file.peek(len(_WARC))
    if not start.startswith(_DICTIONARY):
        return next((form for form in (_GZIP, _ZSTD) if start.startswith(form.starts)), None)
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

    def __init__(self, file: BufferedReader, form: _Form) -> None:
        self._file, self._form = file, form
        self._member: Any = None
        #: Compressed bytes that the member may not have needed; those that it was given last.
        self._rest, self._given = b"", b""
        self._is_open, self._is_new = False, True

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        """Does nothing: behind damage, another buffer reads on."""

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = b""
        try:
            while not data and (self._is_open or self._begin()):
                data = self._read(len(buffer))
        except ERRORS as error:
            # Nothing of this member was read, so that the record before it is whole.
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
        """Begins the next member; False: there is none. (Zeros may stand behind the last one.)"""
        self._rest = self._rest.lstrip(b"\0")
        while len(self._rest) < _MAGIC_BYTES and (more := self._file.read1(_COMPRESSED)):
            self._rest = (self._rest + more).lstrip(b"\0")
        if not self._rest:
            return False
        self._given = self._rest
        if not self._rest.startswith(self._form.starts):
            raise Trailing(f"no {self._form.noun} follows where it should end")
        self._member, self._is_open, self._is_new = self._form.decompressor(), True, True
        return True

    def go_on(self) -> None:
        """Goes on at the next member that begins a record, behind the start of this one; at the end, if there is none."""
        data, self._is_open = self._given[1:], False
        start = self._form.starts[0]
        while True:
            more = self._file.read1(_COMPRESSED)
            data += more
            at = data.find(start)
            # Of the start of a member, enough is there to tell.
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
            return bool(self._form.decompressor().decompress(member, len(_WARC)) == _WARC)
        except ERRORS:
            return False


class _Content:
    """Content that can be read again from a mark on."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        #: Bytes that are read again, and the place of the mark there.
        self._front, self._mark = BytesIO(), 0
        #: What was read behind them since the mark.
        self._behind = list[bytes]()

    def mark(self) -> None:
        """Sets the mark."""
        self._mark = self._front.tell()
        if self._behind:  # all before them was read
            self._front, self._mark = BytesIO(), 0
            self._behind.clear()

    def rewind(self) -> None:
        """Goes back to the mark."""
        self._front.seek(self._mark)
        if self._behind:
            self._front, self._mark = BytesIO(b"".join([self._front.read(), *self._behind])), 0
            self._behind.clear()

    def read(self, size: int) -> bytes:
        """The next bytes, as a file reads them."""
        data = self._front.read(size)
        if len(data) < size:
            self._behind.append(self._stream.read(size - len(data)))
            data = data + self._behind[-1] if data else self._behind[-1]
        return data

    def readline(self, size: int) -> bytes:
        """The next line, as a file reads it."""
        line = self._front.readline(size)
        if len(line) < size and not line.endswith(b"\n"):
            self._behind.append(self._stream.readline(size - len(line)))
            line += self._behind[-1]
        return line


class Records:
    """The records of a file: call ``head``, then ``block`` or ``skip`` for what its fields describe, then ``end``.

    Where one of these raises Damaged, ``go_on`` leads to the next record.
    """

    def __init__(self, file: BufferedReader, max_head: int) -> None:
        """``max_head``: the bytes of a head that are kept. Raises Damaged where the file does not begin like a WARC file."""
        self._max_head = max_head
        #: True: the current record's head is longer.
        self.is_long: bool = False
        self._start = file.tell() if file.seekable() else 0
        if why := others.what_is(file.peek(others.ENOUGH)):
            raise Damaged(why)
        stream: BinaryIO = file
        self._members: _Members | None = None
        if form := _form_of(file):
            self._members = _Members(file, form)
            stream = self._unbuffered(self._members)
        self._content = _Content(stream)
        #: Offsets, without the compression: of the current record, and behind the line that was read last.
        self._begin = self._offset = 0
        #: The offset of the mark; bytes that were read again.
        self._marked = self._again = 0
        #: Damage: the compression can't be read on; the record before it is whole.
        self._is_broken = self._is_behind = False
        self._line = b""
        #: What stands before the first record; empty: nothing.
        self.before = self._find_first(file, form)

    @property
    def place(self) -> str:
        """Where the current record begins."""
        return f"{self._begin} of its content" if self._members else f"{self._begin}"

    def _find_first(self, file: BufferedReader, form: _Form | None) -> str:
        """Reads up to the first record; returns what stands before it. Raises Damaged where there is none."""
        why = ""
        try:
            self._next_line()
            while self._line in _BLANK:
                self._next_line()
            why = (
                others.what_is_within(self._line, form.program)
                if form
                else others.what_is(self._line)
            )
            is_empty = not self._line
        except Damaged:
            is_empty = False
        if why or is_empty:
            raise Damaged(why or "it is empty")
        if self._line.startswith(_WARC):
            return ""
        if not (form is None and self._go_on_compressed(file)) and not self.go_on():
            raise Damaged(others.NO_RECORD)
        return f"at 0: it does not begin with a record; read on at {self.place}"

    def _go_on_compressed(self, file: BufferedReader) -> bool:
        """Goes on at a member of a file whose first bytes are missing or wrong; False: there is none."""
        if not file.seekable():
            return False
        for form in (_GZIP, _ZSTD):
            file.seek(self._start)
            self._members, self._is_broken, self._offset = _Members(file, form), True, 0
            if self.go_on():
                return True
        file.seek(self._start)
        self._members, self._content = None, _Content(file)
        self._offset = self._marked = 0
        return False

    def head(self) -> bytes | None:
        """The first line and the fields of the next record; None at the end. Of a long head, the beginning and the length."""
        self._begin, self.is_long = self._offset - len(self._line), False
        self._set_mark()
        if not self._line:
            return None
        lines, size = list[bytes](), 0
        while self._line not in _BLANK:
            if size and _BEGINS.search(self._line):
                raise Damaged("another record begins in its fields")
            size += len(self._line)
            self.is_long = size > self._max_head
            if not self.is_long or self._line[: len(_LENGTH)].lower() == _LENGTH:
                lines.append(self._line)
            if size > MAX_HEAD:
                raise Damaged("its fields have no end")
            self._next_line()
            if not self._line:
                raise Damaged("it is cut")
        return b"".join(lines)

    def block(self, size: int) -> bytes:
        """The next bytes."""
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
        """Passes over the next bytes."""
        while size:
            size -= len(self.block(min(size, _PIECE)))
            if size:  # a long record is not kept to be read again
                self._set_mark()

    def end(self) -> bytes:
        """Passes over the end of a record, and returns it. Raises Damaged where no record follows, or a checksum is wrong."""
        end = b""
        self._next_line()
        while self._line in _BLANK:
            end = (end + self._line)[: len(END)]
            self._next_line()
        if self._line and not self._line.startswith(_WARC):
            why = "no record follows where it should end"
            if end != END:
                raise Damaged(why)
            self._is_behind, self._begin = True, self._offset - len(self._line)
            raise Trailing(why)
        return end

    def go_on(self) -> bool:
        """Goes on behind damage, at the next member or line that begins a record. Returns False at the end."""
        read = self._offset - self._marked
        if (
            not self._is_behind
            and not self._is_broken
            and self._again + read <= self._offset + _AGAIN
        ):
            self._again += read
            self._offset = self._marked
            self._content.rewind()
        if not self._is_behind:  # else the line that was read last may begin one
            self._line = b"\n"
        self._is_behind, begins = False, None
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
        """Goes on at the next member."""
        self._is_broken = False
        stream: BinaryIO = BytesIO()
        if self._members is not None:
            self._members.go_on()
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

"""The records of a WARC file of any tool, read from its start to its end: plain, or compressed with gzip or zstd."""

from __future__ import annotations

import re
from io import BufferedReader, BytesIO, RawIOBase
from typing import BinaryIO, cast

from tbloom.pages.members import ERRORS, Damaged, gzip_decompressor, opened_zstd
from tbloom.pages.record import END, MAX_HEAD

_GZIP, _ZSTD = b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd"
#: How files begin that are no WARC files yet, and what to do about it. (The last one is a frame with the dictionary of all
#: others: Zstandard Compression for WARC Files 1.0.)
_ARC = b"filedesc://"
_OTHERS = {
    b"BZh": "it is compressed with bzip2: decompress it with bunzip2 first",
    b"\xfd7zXZ": "it is compressed with xz: decompress it with unxz first",
    b"\xff\xfe": "it is text in UTF-16: convert it with iconv first",
    b"\xfe\xff": "it is text in UTF-16: convert it with iconv first",
    b"\x04\x22\x4d\x18": "it is compressed with LZ4: decompress it with lz4 -d first",
    b"\x1f\x9d": "it is compressed with compress: decompress it with uncompress first",
    b"7z\xbc\xaf": "it is a 7-Zip archive: extract it with 7z x first",
    b"PK\x03\x04": "it is a ZIP or WACZ file: extract it with unzip first, and import its WARC files",
    _ARC: "it is an ARC file: convert it with warcio recompress first",
    b"\x5d\x2a\x4d\x18": (
        "it is compressed with a Zstandard dictionary (frame 0x184D2A5D), which is not supported: "
        "decompress it with zstd first"
    ),
}
#: How a zstd file may begin too: with a frame that is skipped.
_SKIPPED = tuple(bytes([number]) + b"\x2a\x4d\x18" for number in range(0x50, 0x60))
_WARC, _BLANK = b"WARC/", (b"\r\n", b"\n")
#: How a record begins, behind damage or in place of fields; other bytes may stand before it in its line.
_BEGINS = re.compile(rb"WARC/\d\.\d+[ \t]*\r?\n")
_LENGTH = b"content-length:"
_PIECE = 1 << 20
#: Compressed bytes that are read at once, and searched for the next member behind damage.
_COMPRESSED = 1 << 13
#: Bytes that may be read again behind damage, beside as many as the file has: or a small file may take hours.
_AGAIN = 1 << 24


class Trailing(Damaged):
    """Something else stands behind a record that is whole."""


class _Gunzipped(RawIOBase):
    """The content of the members of a gzip file."""

    def __init__(self, file: BufferedReader) -> None:
        self._file = file
        self._member = gzip_decompressor()
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
        data = self._member.decompress(fresh, most)
        if self._member.eof:
            self._rest, self._is_open = self._member.unused_data, False
        return data

    def _begin(self) -> bool:
        """Begins the next member; False: there is none. (Zeros may stand behind the last one.)"""
        self._rest = self._rest.lstrip(b"\0")
        while len(self._rest) < len(_GZIP) and (more := self._file.read1(_COMPRESSED)):
            self._rest = (self._rest + more).lstrip(b"\0")
        if not self._rest:
            return False
        self._given = self._rest
        if not self._rest.startswith(_GZIP):
            raise Trailing("no gzip member follows where it should end")
        self._member, self._is_open, self._is_new = gzip_decompressor(), True, True
        return True

    def go_on(self) -> None:
        """Goes on at the next member that begins a record, behind the start of this one; at the end, if there is none."""
        data, self._is_open = self._given[1:], False
        while True:
            more = self._file.read1(_COMPRESSED)
            data += more
            at = data.find(_GZIP)
            # Of the start of a member, enough is there to tell.
            while at >= 0 and (len(data) - at > _COMPRESSED or not more):
                if _begins_record(data[at:]):
                    self._rest = data[at:]
                    return
                at = data.find(_GZIP, at + 1)
            if not more:
                self._rest = b""
                return
            data = data[at if at >= 0 else 1 - len(_GZIP) :]


def _begins_record(member: bytes) -> bool:
    try:
        return gzip_decompressor().decompress(member, len(_WARC)) == _WARC
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
        start = file.peek(len(_WARC))
        for other, why in _OTHERS.items():
            if start.startswith(other):
                raise Damaged(why)
        stream: BinaryIO = file
        self._gunzipped: _Gunzipped | None = None
        self._is_compressed = start.startswith((_GZIP, _ZSTD, *_SKIPPED))
        if start.startswith(_GZIP):
            self._gunzipped = _Gunzipped(file)
            stream = self._unbuffered(self._gunzipped)
        elif self._is_compressed:
            stream = opened_zstd(file)
        self._content = _Content(stream)
        #: Offsets, without the compression: of the current record, and behind the line that was read last.
        self._begin = self._offset = 0
        #: The offset of the mark; bytes that were read again.
        self._marked = self._again = 0
        #: Damage: the compression can't be read on; the record before it is whole.
        self._is_broken = self._is_behind = False
        self._line = b""
        self._next_line()
        if not self._line.startswith(_WARC):
            is_arc = self._line.startswith(_ARC)
            raise Damaged(_OTHERS[_ARC] if is_arc else "it does not begin with a record")

    @property
    def place(self) -> str:
        """Where the current record begins."""
        return f"{self._begin} of its content" if self._is_compressed else f"{self._begin}"

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
        """Goes on behind damage, at the next gzip member or the next line that begins a record. Returns False at the end."""
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
        if self._gunzipped is not None:
            self._gunzipped.go_on()
            stream = self._unbuffered(self._gunzipped)
        self._content = _Content(stream)

    def _unbuffered(self, raw: _Gunzipped) -> BinaryIO:
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

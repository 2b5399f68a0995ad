"""The records of a WARC file of any tool, read from its start to its end: plain, or compressed with gzip or zstd."""

from __future__ import annotations

import zlib
from gzip import BadGzipFile, GzipFile
from io import BufferedReader
from typing import BinaryIO, cast

from tbloom.pages.members import Damaged, ZstdError, opened_zstd
from tbloom.pages.record import MAX_HEAD

_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
#: How files begin that are no WARC files yet, and what to do about it. (The last one is a frame with the dictionary of all
#: others: Zstandard Compression for WARC Files 1.0.)
_OTHERS = {
    b"BZh": "it is compressed with bzip2: decompress it with bunzip2 first",
    b"\xfd7zXZ": "it is compressed with xz: decompress it with unxz first",
    b"\xff\xfe": "it is text in UTF-16: convert it with iconv first",
    b"\xfe\xff": "it is text in UTF-16: convert it with iconv first",
    b"filedesc://": "it is an ARC file: convert it with warcio recompress first",
    b"\x5d\x2a\x4d\x18": (
        "it is compressed with a Zstandard dictionary (frame 0x184D2A5D), which is not supported: "
        "decompress it with zstd first"
    ),
}
#: How a zstd file may begin too: with a frame that is skipped.
_SKIPPED = tuple(bytes([number]) + b"\x2a\x4d\x18" for number in range(0x50, 0x60))
_WARC, _BLANK = b"WARC/", (b"\r\n", b"\n")
_LENGTH = b"content-length:"
_PIECE = 1 << 20
_ERRORS = (zlib.error, BadGzipFile, ZstdError, EOFError)


class Trailing(Damaged):
    """Something else stands behind a record that is whole."""


class Records:
    """The records of a file: call ``head``, then ``block`` or ``skip`` for what its fields describe, then ``end``."""

    def __init__(self, file: BufferedReader, max_head: int) -> None:
        """``max_head``: the bytes of a head that are kept. Raises Damaged where the file does not begin like a WARC file."""
        self._max_head = max_head
        #: True: the current record's head is longer.
        self.is_long: bool = False
        start = file.peek(len(_WARC))
        for other, why in _OTHERS.items():
            if start.startswith(other):
                raise Damaged(why)
        #: True: changed bytes are noticed. (In zstd, checksums are an option.)
        self.has_checksums: bool = start.startswith(_GZIP)
        self._stream: BinaryIO = file
        self._is_compressed = True
        if self.has_checksums:
            # Not isal's, which reads ahead: damage would hide the records before it.
            self._stream = cast("BinaryIO", GzipFile(fileobj=file, mode="rb"))
        elif start.startswith((_ZSTD, *_SKIPPED)):
            self._stream = opened_zstd(file)
        else:
            self._is_compressed = False
        #: Offsets, without the compression: of the current record, and behind the line that was read last.
        self._begin = self._offset = 0
        self._line = b""
        self._next_line()
        if not self._line.startswith(_WARC):
            raise Damaged("it does not begin with a record")

    @property
    def place(self) -> str:
        """Where the current record begins."""
        return f"{self._begin} of its content" if self._is_compressed else f"{self._begin}"

    def head(self) -> bytes | None:
        """The first line and the fields of the next record; None at the end. Of a long head, the beginning and the length."""
        self._begin, self.is_long = self._offset - len(self._line), False
        if not self._line:
            return None
        lines, size = list[bytes](), 0
        while self._line not in _BLANK:
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
            data = self._stream.read(size)
        except _ERRORS as error:
            raise Damaged(str(error)) from None
        self._offset += len(data)
        if len(data) < size:
            raise Damaged("it is cut")
        return data

    def skip(self, size: int) -> None:
        """Passes over the next bytes."""
        while size:
            size -= len(self.block(min(size, _PIECE)))

    def end(self) -> None:
        """Passes over the end of a record. Raises Damaged where no record follows, or a checksum is wrong."""
        self._next_line()
        is_whole = self._line in _BLANK and not self.has_checksums
        while self._line in _BLANK:
            self._next_line()
        if self._line and not self._line.startswith(_WARC):
            self._begin = self._offset - len(self._line) if is_whole else self._begin
            raise (Trailing if is_whole else Damaged)("no record follows where it should end")

    def _next_line(self) -> None:
        try:
            self._line = self._stream.readline(MAX_HEAD)
        except _ERRORS as error:
            # Then all members before it were whole, and their checksums right.
            is_behind = isinstance(error, BadGzipFile) and f"{error}".startswith("Not a gzipped")
            self._begin = self._offset if is_behind else self._begin
            raise (Trailing if is_behind else Damaged)(str(error)) from None
        self._offset += len(self._line)

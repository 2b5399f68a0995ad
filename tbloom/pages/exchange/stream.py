"""The records of a WARC file of any tool, read from its start to its end: plain, or compressed with gzip or zstd."""

from __future__ import annotations

import sys
import zlib
from gzip import BadGzipFile, GzipFile
from io import BufferedReader
from typing import BinaryIO, cast

from tbloom.pages.members import Damaged
from tbloom.pages.record import MAX_HEAD

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
#: How a zstd file may begin too: with a frame that is skipped.
_SKIPPED = tuple(bytes([number]) + b"\x2a\x4d\x18" for number in range(0x50, 0x60))
#: A frame with the dictionary of all others (Zstandard Compression for WARC Files 1.0).
_DICTIONARY = b"\x5d\x2a\x4d\x18"
_WARC, _BLANK = b"WARC/", (b"\r\n", b"\n")
_PIECE = 1 << 20
_ERRORS = (zlib.error, BadGzipFile, zstd.ZstdError, EOFError)


class Records:
    """The records of a file: call ``head``, then ``block`` or ``skip`` for what its fields describe, then ``end``."""

    def __init__(self, file: BufferedReader) -> None:
        """Raises Damaged where the file does not begin like a WARC file."""
        start = file.peek(len(_WARC))
        if start.startswith(_DICTIONARY):
            why = "it is compressed with a Zstandard dictionary (frame 0x184D2A5D), which is not supported: "
            raise Damaged(f"{why}decompress it with zstd first")
        #: True: changed bytes are noticed. (In zstd, checksums are an option.)
        self.has_checksums = start.startswith(_GZIP)
        self._stream: BinaryIO = file
        self._is_compressed = True
        if self.has_checksums:
            # Not isal's, which reads ahead: damage would hide the records before it.
            self._stream = cast("BinaryIO", GzipFile(fileobj=file, mode="rb"))
        elif start.startswith((_ZSTD, *_SKIPPED)):
            self._stream = cast("BinaryIO", zstd.ZstdFile(file))
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
        """The first line and the fields of the next record, with the blank line behind; None at the end."""
        self._begin = self._offset - len(self._line)
        if not self._line:
            return None
        lines, size = [self._line], 0
        while lines[-1] not in _BLANK:
            size += len(lines[-1])
            if size > MAX_HEAD:
                raise Damaged("its fields have no end")
            self._next_line()
            if not self._line:
                raise Damaged("it is cut")
            lines.append(self._line)
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
        while self._line in _BLANK:
            self._next_line()
        if self._line and not self._line.startswith(_WARC):
            raise Damaged("no record follows where it should end")

    def _next_line(self) -> None:
        try:
            self._line = self._stream.readline(MAX_HEAD)
        except _ERRORS as error:
            raise Damaged(str(error)) from None
        self._offset += len(self._line)

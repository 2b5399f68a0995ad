"""The content of a WARC file of any tool: plain, in gzip members or zstd frames, or compressed as a whole.

Read here, and not with warcio (1.8) or FastWARC (2.0): both end at the first damaged member. warcio refuses one gzip over
all, and FastWARC returns a record that is cut like any other.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import partial
from typing import BinaryIO, NamedTuple, Protocol, cast

from isal import igzip_lib

from tbloom.pages.members import Damaged
from tbloom.pages.record import MAX_HEAD

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_READ, _PIECE = 1 << 16, 1 << 20
#: Bytes from which a member's start is decompressed.
_PROBE = 1 << 12
#: How often a file is read again behind damage: this many times its bytes so far, or this many bytes.
_TIMES, _BYTES = 8, 1 << 24
_WARC, _END = b"WARC/", b"\r\n\r\n"
#: The longest match of a format's pattern.
_PATTERN_BYTES = 11
BLANK_LINE, _LINE_ENDS = re.compile(rb"\n\r?\n"), re.compile(rb"[\r\n]*")
_ERRORS = cast("type[Exception]", igzip_lib.error), zstd.ZstdError, EOFError


class _Decoder(Protocol):
    """A decompressor of the standard library's form."""

    eof: bool
    needs_input: bool
    unused_data: bytes

    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


class _Plain:
    eof, needs_input, unused_data = False, True, b""

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:  # noqa: ARG002
        return data


class _Format(NamedTuple):
    decoder: Callable[[], _Decoder]
    #: What a member, or a frame, begins with.
    starts: tuple[bytes, ...]
    #: Where a record may begin.
    pattern: re.Pattern[bytes]


_GZIP, _ZSTD = b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd"
#: A frame with the dictionary of all others (Zstandard Compression for WARC Files 1.0).
_DICTIONARY = b"\x5d\x2a\x4d\x18"
_FORMATS = (
    _Format(_Plain, (_WARC,), re.compile(rb"WARC/[01]\.\d{1,2}\r?\n")),
    _Format(
        partial(igzip_lib.IgzipDecompressor, flag=igzip_lib.DECOMP_GZIP),
        (_GZIP,),
        re.compile(re.escape(_GZIP)),
    ),
    _Format(
        cast("Callable[[], _Decoder]", zstd.ZstdDecompressor),
        (_ZSTD, *(bytes([number]) + b"\x2a\x4d\x18" for number in range(0x50, 0x60))),
        re.compile(re.escape(_ZSTD)),
    ),
)


class Content:
    """The content of a WARC file, without its compression, read from its start to its end."""

    def __init__(self, file: BinaryIO) -> None:
        """Raises Damaged where the file does not begin like a WARC file."""
        self._file = file
        #: Bytes that were read and not decoded, and their offset.
        self._raw, self._offset = b"", 0
        #: Bytes that the next read asks for; bytes that were read again.
        self._ahead, self._again = _READ, 0
        self._more(len(_WARC))
        if self._raw.startswith(_DICTIONARY):
            why = "it is compressed with a Zstandard dictionary (frame 0x184D2A5D), which is not supported: "
            raise Damaged(f"{why}decompress it with zstd first")
        found = next((one for one in _FORMATS if self._raw.startswith(one.starts)), None)
        if found is None:
            raise Damaged("it does not begin like one")
        self._format = found
        self._decoder: _Decoder = found.decoder()
        self._content = bytearray()
        self._member = 0
        #: The offset in the file where the current record begins, or the gzip member that it begins in.
        self.place = 0
        while len(self._content) < len(_WARC) and self._fill():
            pass
        if not self._content.startswith(_WARC):
            raise Damaged("it does not begin with a record")

    @property
    def done(self) -> int:
        """Bytes of the file that have been read."""
        return self._offset

    @property
    def has_checksums(self) -> bool:
        """True: changed bytes are noticed. (In zstd, checksums are an option.)"""
        return self._format.starts == (_GZIP,)

    def head(self) -> bytes | None:
        """The first line and the fields of the next record, with the blank line behind; None at the end."""
        while not self._skip_blank():
            self.place = self._offset if self._decoder.eof else self._member
            if not self._fill():
                return None
        self.place = self._member
        if self._format.decoder is _Plain:
            self.place = self._offset - len(self._content)
        looked = 0
        while not (end := BLANK_LINE.search(self._content, max(0, looked - 2))):
            looked = len(self._content)
            if not self._content.startswith(_WARC[:looked]):
                raise Damaged("no record begins here")
            if looked > MAX_HEAD:
                raise Damaged("its fields have no end")
            if not self._fill():
                raise Damaged("it is cut")
        if not self._content.startswith(_WARC):
            raise Damaged("no record begins here")
        return self._take(end.end())

    def block(self, size: int) -> bytes:
        """The next bytes: what a record's fields describe."""
        while len(self._content) < size:
            if not self._fill():
                raise Damaged("it is cut")
        return self._take(size)

    def skip(self, size: int) -> None:
        """Passes over the next bytes."""
        while size:
            size -= len(self.block(min(size, _PIECE)))

    def end(self) -> None:
        """Passes over the end of a record. Raises Damaged where it does not end there, or a checksum is wrong."""
        while len(self._content) < len(_END) and self._fill_member():
            pass
        is_end = self._content.startswith(_END)
        while not self._skip_blank():
            if not self._fill_member():
                return
        if not is_end and not self._content.startswith(_WARC[: len(self._content)]):
            raise Damaged("its length is wrong")

    def resume(self) -> bool:
        """Goes to the next place behind damage that looks like a record; False: there is none.

        What was read beyond the damage is read again. Not without end: where each record of a stranger's file claims to
        be as long as the file, this goes on behind what was read.
        """
        end = self._offset + len(self._raw)
        again = self._again + end - (self.place + 1)
        if again <= max(_BYTES, _TIMES * end) and self._file.seekable():
            self._again, self._ahead = again, _PROBE
            self._file.seek(self.place + 1)
            self._raw, self._offset = b"", self.place + 1
        self._content.clear()
        while self._more(_PROBE):
            found = self._format.pattern.search(self._raw)
            if found is None:
                self._drop(max(1, len(self._raw) - _PATTERN_BYTES))
            elif self._more(found.start() + _PROBE) and self._probe(found.start()):
                self._drop(found.start())
                self._member, self._decoder = self._offset, self._format.decoder()
                return True
            else:
                self._drop(found.start() + 1)
        return False

    def _take(self, size: int) -> bytes:
        taken = bytes(memoryview(self._content)[:size])
        del self._content[:size]
        return taken

    def _skip_blank(self) -> bool:
        """Passes over line ends; False: nothing else is left of what was read."""
        blank = _LINE_ENDS.match(self._content)
        del self._content[: blank.end() if blank else 0]
        return bool(self._content)

    def _fill_member(self) -> bool:
        """Decodes some more of this member; False at its end."""
        return not self._decoder.eof and self._fill()

    def _fill(self) -> bool:
        """Decodes some more; False at the end of the file. Raises Damaged."""
        if self._decoder.eof:
            if not self._more(len(_ZSTD)):
                return False
            if not self._raw.startswith(self._format.starts):
                raise Damaged("no record begins here")
            self._member, self._decoder = self._offset, self._format.decoder()
        data = b""
        if self._decoder.needs_input:
            self._more(1)
            data, self._raw = self._raw, b""
            self._offset += len(data)
            if not data:
                if self._format.decoder is _Plain:
                    return False
                raise Damaged("it is cut")
        try:
            self._content += self._decoder.decompress(data, _PIECE)
        except _ERRORS as error:
            raise Damaged(str(error)) from None
        if self._decoder.eof:
            self._raw = self._decoder.unused_data
            self._offset -= len(self._raw)
        return True

    def _more(self, size: int) -> bool:
        """Reads until that many bytes are there, or all that are left; False: there are none."""
        while len(self._raw) < size and (data := self._file.read(max(self._ahead, size))):
            self._raw += data
            self._ahead = min(2 * self._ahead, _READ)
        return bool(self._raw)

    def _drop(self, size: int) -> None:
        self._raw = self._raw[size:]
        self._offset += size

    def _probe(self, begin: int) -> bool:
        """True: a record begins there in the bytes that were read."""
        try:
            start = self._format.decoder().decompress(self._raw[begin : begin + _PROBE], len(_WARC))
        except _ERRORS:
            return False
        return start.startswith(_WARC)

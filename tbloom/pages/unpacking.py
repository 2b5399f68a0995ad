"""The bytes of a WARC file, decompressed, for FastWARC. What goes in and what comes out is counted here.

FastWARC's own decompression is not used: it takes an empty gzip member for the end of the file.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from isal import igzip_lib

from tbloom.pages.members import ERRORS, zstd

_GZIP = b"\x1f\x8b\x08"
#: Frames of zstd (RFC 8878), of which some are to be skipped. The first one may be the dictionary of all others.
_ZSTD = re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18")
_DICTIONARY, _MAX_DICTIONARY = b"\x5d\x2a\x4d\x18", 1 << 24
#: A gzip member and a zstd frame are known by so many bytes; so many are before the content of a frame that is skipped.
_MAGIC_BYTES, _SKIPPED_HEAD = 4, 8
#: The first bytes of a member are given at once: isal loses its place in some gzip headers that come in two parts.
_HEADER_BYTES = 1 << 9
#: So many bytes of a file are decompressed at a time.
_CHUNK = 1 << 15
#: So many bytes that FastWARC was given are kept, at least: it has read on behind the header of a record that it returns.
_KEPT = 1 << 18
_END_OF_HEAD = re.compile(rb"\n\r?\n")
_Member = igzip_lib.IgzipDecompressor | zstd.ZstdDecompressor
#: Line ends are between records, and zeros behind the last one: of a tape, or a file that was made longer beforehand.
_NOT_BLANK = re.compile(rb"[^\r\n\0]")


class PackingDamage(NamedTuple):
    """A place behind which nothing can be decompressed."""

    #: The offset in the file of the member or frame.
    offset: int
    #: The offset in the decompressed bytes at which it begins.
    begin: int
    why: str


class Unpacked:
    """The decompressed bytes from an offset of a file on. All offsets but ``at`` and ``where`` count from there."""

    def __init__(
        self,
        read_at: Callable[[int, int], bytes],
        offset: int,
        dictionary: zstd.ZstdDict | None = None,
    ) -> None:
        """``read_at`` returns the bytes of the file at an offset, fewer or none at its end."""
        self._read_at, self._dictionary = read_at, dictionary
        self.at: int = offset
        self._offset = offset
        start = read_at(offset, _MAGIC_BYTES)
        self._is_plain = not (start.startswith(_GZIP) or _ZSTD.match(start))
        self.damage: PackingDamage | None = None
        self._member: _Member | None = None
        #: Bytes of the file that are not decompressed yet.
        self._data = b""
        #: Where members begin: offsets of decompressed bytes, and of the file.
        self._members = deque([(0, offset)])
        #: The number of bytes that were decompressed, and that were given.
        self._made = 0
        self.given: int = 0
        #: What is given again, and what was given last.
        self._again, self._kept = b"", bytearray()

    def tell(self) -> int:
        """Return 0: FastWARC counts from there."""
        return 0

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes."""
        size = _CHUNK if size < 0 else size
        if self._again:
            data, self._again = self._again[:size], self._again[size:]
        else:
            data = self._more(size) if self._is_plain else self._unpacked(size)
        self.given += len(data)
        if len(self._kept) > 2 * _KEPT:
            del self._kept[:-_KEPT]
        self._kept += data
        return data

    def where(self, begin: int) -> int:
        """Return the offset in the file of the member with these bytes. Later calls must not ask for earlier ones."""
        if self._is_plain:
            return self._offset + begin
        while len(self._members) > 1 and self._members[1][0] <= begin:
            self._members.popleft()
        return self._members[0][1]

    def end_of_head(self, begin: int) -> int:
        """Return the offset behind the empty line that ends the header of a record; -1: there is none."""
        found = _END_OF_HEAD.search(self._kept, begin - self._kept_from)
        return self._kept_from + found.end() if found else -1

    def search(self, pattern: re.Pattern[bytes], begin: int, end: int) -> int:
        """Return the first offset between two at which a pattern is found, in what is kept; -1: nowhere."""
        start = self._kept_from
        found = pattern.search(self._kept, max(0, begin - start), max(0, end - start))
        return start + found.start() if found else -1

    def give_again(self, begin: int, end: int, change: Callable[[bytes], bytes]) -> None:
        """Give what was given from an offset on again; up to another one changed, in the same length."""
        start = self._kept_from
        head, rest = self._kept[begin - start : end - start], self._kept[end - start :]
        self._again = change(bytes(head)) + bytes(rest) + self._again
        del self._kept[begin - start :]
        self.given = begin

    def not_blank(self, begin: int, end: int) -> int:
        """Return the first offset between two at which there is no padding; -1: there is none."""
        if begin < min(end, self._kept_from):  # what stands there is not known any more
            return begin
        return self.search(_NOT_BLANK, begin, end)

    def not_blank_behind(self, begin: int) -> int:
        """Return the first offset behind another one at which there is no padding, however far that is; -1: only padding follows."""
        while (found := self.not_blank(begin, self.given)) < 0:
            begin = max(begin, self.given)
            if not self.read():
                break
        return found

    @property
    def _kept_from(self) -> int:
        return self.given - len(self._kept)

    def _more(self, size: int) -> bytes:
        data = self._read_at(self.at, size)
        self.at += len(data)
        return data

    def _unpacked(self, size: int) -> bytes:
        while self.damage is None and (member := self._member or self._begun()):
            if data := self._part(member, size):
                return data
        return b""

    def _begun(self) -> _Member | None:
        """Begin with the next member or frame. Return None if there is none."""
        while len(self._data) < _HEADER_BYTES and (more := self._more(_CHUNK)):
            self._data += more
        if not self._data:
            return None
        self._members.append((self._made, self.at - len(self._data)))
        if _ZSTD.match(self._data):
            self._member = zstd.ZstdDecompressor(self._dictionary)
        elif self._data.startswith(_GZIP[: len(self._data)]):
            self._member = igzip_lib.IgzipDecompressor(igzip_lib.DECOMP_GZIP)
        elif not self._is_padding():
            self._damaged("neither a gzip member nor a zstd frame begins there")
        return self._member

    def _is_padding(self) -> bool:
        """Return True if only zeros follow."""
        while not self._data.strip(b"\0"):
            self._data = self._more(_CHUNK)
            if not self._data:
                return True
        return False

    def _part(self, member: _Member, room: int) -> bytes:
        """Return further bytes of the member."""
        data, self._data = self._data, b""
        if not data and member.needs_input:
            data = self._more(_CHUNK)
            if not data:
                self._damaged("it is cut")
                return b""
        try:
            part = member.decompress(data, room)
        except ERRORS as error:
            self._damaged(str(error))
            return b""
        if member.eof:
            self._data, self._member = member.unused_data, None
        self._made += len(part)
        return part

    def _damaged(self, why: str) -> None:
        begin, offset = self._members[-1]
        self.damage = PackingDamage(offset, begin, why)


def dictionary_in(start: Callable[[int], bytes]) -> zstd.ZstdDict | None:
    """Return the dictionary at the start of a file; None if there is none. Raise ValueError if it can't be read.

    :param start: returns so many of the file's first bytes.
    """
    head = start(_SKIPPED_HEAD)
    size = int.from_bytes(head[_MAGIC_BYTES:], "little")
    if not head.startswith(_DICTIONARY) or size > _MAX_DICTIONARY:
        return None
    content = start(_SKIPPED_HEAD + size)[_SKIPPED_HEAD:]
    try:
        if _ZSTD.match(content):
            content = zstd.ZstdDecompressor().decompress(content, _MAX_DICTIONARY)
        return zstd.ZstdDict(content)
    except ERRORS as error:
        raise ValueError(str(error)) from None

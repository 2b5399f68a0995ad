"""The WARC files in a WACZ or another ZIP file (Web Archive Collection Zipped 1.1; ZIP: APPNOTE.TXT 6.3).

A WACZ file stores them in its folder ``archive``, without further compression. Other folders are read too, and deflated
files, as ``zip -r`` writes them.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from io import RawIOBase
from typing import BinaryIO, cast
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipExtFile, ZipFile, ZipInfo

from tbloom.pages.members import Damaged

#: How ZIP files begin: one with files, one without, and one of several parts.
STARTS = (b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08")
_WARC = re.compile(r"\.w?arc(\.\w+)?$", re.IGNORECASE)
_ZIP = re.compile(r"\.(wacz|zip)$", re.IGNORECASE)
_ENCRYPTED = 1
_REPAIR = "repair it with zip -FF FILE --out NEW first"
#: The errors of zipfile for arbitrary bytes.
_ERRORS = (BadZipFile, EOFError, NotImplementedError, RuntimeError, ValueError, zlib.error)


class Member(RawIOBase):
    """A file in a ZIP file. It ends where it can't be read on.

    All of its bytes can be read, even if its checksum is wrong: the digests of its records tell which are damaged.
    """

    def __init__(self, archive: ZipFile, info: ZipInfo) -> None:
        self.name: str = info.filename
        #: What is wrong with the file; known once it was read to its end.
        self.fault: str = ""
        self._sum, self._expected = 0, info.CRC
        del info.CRC  # or zipfile would not return the last bytes if it is wrong
        self._file = cast("ZipExtFile", archive.open(info))

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Read what fits into the buffer."""
        data = b""
        try:
            data = self._file.read1(len(buffer))
        except _ERRORS as error:
            self.fault = f"it can't be extracted ({error})"
        self._sum = zlib.crc32(data, self._sum)
        if not (data or self.fault or self._sum == self._expected):
            self.fault = "its checksum in the ZIP file is that of other bytes"
        buffer[: len(data)] = data
        return len(data)


def members(file: BinaryIO) -> Iterator[Member | tuple[str, str]]:
    """Yield the WARC files in a ZIP file; for one that can't be read, its name and why. Raise Damaged if there is none."""
    if not file.seekable():
        raise Damaged("it is a ZIP or WACZ file, which can't be read from a pipe: give its path")
    try:
        archive = ZipFile(file)
    except _ERRORS as error:
        why = f"it is a ZIP or WACZ file that is damaged or cut ({error}): {_REPAIR}"
        raise Damaged(why) from None
    infos = archive.infolist()
    found = [info for info in infos if _WARC.search(info.filename)]
    if not found:
        is_nested = any(_ZIP.search(info.filename) for info in infos)
        inside = "it holds other WACZ or ZIP files: extract it with unzip first, and import those"
        raise Damaged(inside if is_nested else "it is a ZIP file without WARC files")
    for info in found:
        if info.flag_bits & _ENCRYPTED or info.compress_type not in {ZIP_STORED, ZIP_DEFLATED}:
            yield info.filename, "it is encrypted, or not deflated: extract it with 7z x first"
            continue
        try:
            yield Member(archive, info)
        except (*_ERRORS, OSError) as error:  # OSError: no file has this offset
            yield info.filename, f"it can't be extracted ({error}): {_REPAIR}"

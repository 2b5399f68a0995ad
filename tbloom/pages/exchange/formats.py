"""Recognizes files that are no WARC files, and says what to do with them."""

from __future__ import annotations

import re

#: So many bytes of a file's start suffice to recognize it.
START_BYTES = 512
#: The place of a tar file's mark.
_TAR = slice(257, 262)
NO_RECORD = "it has no WARC record"
#: For a file with the suffix of Brotli, which can't be recognized by its bytes.
BROTLI = "it is compressed with Brotli: decompress it with brotli -d first"
_BZIP2 = "it is compressed with bzip2: decompress it with bunzip2 first"
_UTF_16 = "it is text in UTF-16: convert it with iconv first"
_BEGINS: dict[bytes, str] = {
    b"BZh": _BZIP2,
    b"\xfd7zXZ": "it is compressed with xz: decompress it with unxz first",
    b"\x04\x22\x4d\x18": "it is compressed with LZ4: decompress it with lz4 -d first",
    b"\x1f\x9d": "it is compressed with compress: decompress it with uncompress first",
    b"7z\xbc\xaf": "it is a 7-Zip archive: extract it with 7z x first, and import its WARC files",
    b"Rar!": "it is a RAR archive: extract it first, and import its WARC files",
    b"\xff\xfe": _UTF_16,
    b"\xfe\xff": _UTF_16,
    b"filedesc:": "it is an ARC file: convert it with warcio recompress first",
    b" CDX ": "it is a CDX index: import the WARC files that it names",
    b"bplist00": "it is a property list, such as Safari's .webarchive",
}
_PATTERNS: dict[re.Pattern[bytes], str] = {
    # A key, a time and JSON, or other columns.
    re.compile(rb"\S+\)/\S* \d{14} "): "it is a CDX index: import the WARC files that it names",
    re.compile(rb"\s*<(!doctype html|html|head|!--)", re.IGNORECASE): (
        "it is an HTML file: store it with tbloom pages put"
    ),
    re.compile(rb"\s*[{\[]\s*[\"{\r\n]"): "it is JSON: convert a HAR file with har2warc first",
    re.compile(rb"(From: <Saved by|MIME-Version:)"): "it is an MHTML file",
}


def recognize(start: bytes) -> str:
    """Return the format of a file that can't be imported, recognized by its start, and what to do with it; '' if it may be a WARC file."""
    start = start[:START_BYTES]  # the patterns take the square of a longer line's time
    if start[_TAR] == b"ustar":
        return "it is a tar archive: extract it with tar -xf first, and import its WARC files"
    for begin, why in _BEGINS.items():
        if start.startswith(begin):
            return why
    return next((why for pattern, why in _PATTERNS.items() if pattern.match(start)), "")


def recognize_within(start: bytes, program: str) -> str:
    """Return the same for the content with this start, of a file that this program decompresses."""
    if start.startswith((b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd")):
        return f"it is compressed twice: decompress it with {program} first"
    why = recognize(start)
    return why and f"{why} (before that, decompress it with {program})"

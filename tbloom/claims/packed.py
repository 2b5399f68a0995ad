"""Notes as the server keeps them: that of a request is deflated.

Such a note is a line, and a JSON object behind it. Packed, it is the line, the byte ``FORM``, the object, deflated (RFC 1951)
against a dictionary, and the CRC-32 of the line's first word, a line feed and the object (4 bytes): ``lua/claims/claim.lua`` may give
the object another version in the line. What ``lua/claims/history.lua`` puts at the end of a note follows that.
"""

from __future__ import annotations

import json
import re
import zlib

#: How a note ends whose work has failed (``lua/claims/history.lua``).
FAILURE: re.Pattern[str] = re.compile(r', "_failed": (\[[^\]]*\])\}\Z')
#: The form of a packed note. Another dictionary is another form.
FORM = "\x01"
#: How a note of a request begins.
_LINE = re.compile(r"[^\n]+\n(?=\{.*\}\Z|\x01)", re.DOTALL)
#: A packed object has at most so many bytes: a deflated text may be a thousand times as long.
_MOST = 1 << 18
#: What notes of crawlers often have, the most frequent words last (RFC 1950, section 2.2). It never changes.
_DICTIONARY = (
    b'"proxy": "http://", "cookiejar": , "download_slot": ", "playwright": true, "handle_httpstatus_list": [404], "dont_redirect": true, '
    b'"dont_merge_cookies": true, "tbloom_within": , "tbloom_keep": , "tbloom_version": "{"!datetime": "{"!tuple": ["_class": '
    b'"scrapy.http.request.form:FormRequest", "scrapy.http.request.json_request:JsonRequest", "encoding": "utf-8", "flags": [], '
    b'"cookies": {"session": ", "Authorization"}, [{"!bytes": "Bearer "}]], "X-Requested-With"}, [{"!bytes": "XMLHttpRequest"}]], '
    b'"Accept"}, [{"!bytes": "text/html"}]], "User-Agent"}, [{"!bytes": "Mozilla/5.0 "Content-Type"}, [{"!bytes": "application/json"}]], '
    b'"application/x-www-form-urlencoded"}]], "method": "POST", "body": {"!bytes": "", "priority": 1, "dont_filter": true, "cb_kwargs": '
    b'{"item": {"title": ", "name": ", "price": ", "date": ", "id": ", "category": ", "page": 1, "_rule": "parse_item"}'
    b', "rule": 0, "link_text": ", "download_timeout": 180.0, .php?id=&page=/category/products/articles/news/index.html", "callback": '
    b'"parse", {"url": "http://www.{"url": "https://www..com/.org/", "callback": "parse_item", "errback": ", "headers": {"!dict": '
    b'[[{"!bytes": "Referer"}, [{"!bytes": "https://www..html"}]]]}, "meta": {"depth": 1}}'
)
#: The window of 4096 bytes has the dictionary, and a small table is soon made.
_WINDOW, _TABLE = -12, 5
#: The bytes of a checksum. A zlib stream has one, too, and takes 6 bytes more for its header.
_CHECKSUM = 4


def pack(text: str) -> bytes:
    """Return a note as the server keeps it."""
    line = _LINE.match(text)
    if line is None:
        return text.encode()
    failure = FAILURE.search(text)
    note = FAILURE.sub("}", text[line.end() :])
    deflate = zlib.compressobj(9, zlib.DEFLATED, _WINDOW, _TABLE, zdict=_DICTIONARY)
    packed = deflate.compress(note.encode()) + deflate.flush() + _checksum(line[0][:-1], note)
    return f"{line[0]}{FORM}".encode() + packed + (failure[0].encode() if failure else b"")


def _checksum(line: str, note: str) -> bytes:
    first = line.partition(" ")[0]
    return zlib.crc32(f"{first}\n{note}".encode()).to_bytes(_CHECKSUM)


def unpack(stored: bytes) -> str:
    """Return the note that the server keeps.

    A packed object that is damaged comes back as an object that says so in the field ``_damaged``.
    """
    line, mark, packed = stored.partition(f"\n{FORM}".encode())
    if not (mark and line) or b"\n" in line:
        # Another program may have written bytes that are not UTF-8.
        return stored.decode(errors="replace")
    inflate = zlib.decompressobj(_WINDOW, zdict=_DICTIONARY)
    try:
        note, rest = inflate.decompress(packed, _MOST).decode(), inflate.unused_data
        why = "" if inflate.eof and len(rest) >= _CHECKSUM else "it is cut off"
        if not why and rest[:_CHECKSUM] != _checksum(line.decode(), note):
            why = "it has another checksum"
    except (zlib.error, UnicodeDecodeError) as error:
        rest, why = b"", str(error)
    if why:
        note = json.dumps({"_damaged": why})
        rest = packed
    failure = FAILURE.search(rest.decode(errors="replace"))
    if failure and note.endswith("}") and note != "{}":
        note = note[:-1] + failure[0]
    return f"{line.decode(errors='replace')}\n{note}"

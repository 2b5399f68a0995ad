"""A CDXJ index of a store's segments, by which pywb finds their pages.

Lines are those of pywb's own ``cdxj-indexer``. Their keys are made by the library that pywb looks them up with, ``surt``.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import sqlite3
from base64 import b32encode
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing

from tbloom.errors import TBloomError
from tbloom.pages import reading
from tbloom.pages.config import PagesConfig
from tbloom.pages.database import temporary_errors
from tbloom.pages.index import Index
from tbloom.pages.members import ZST
from tbloom.pages.page import Page
from tbloom.pages.segments import Found, Segment

logger: logging.Logger = logging.getLogger(__name__)
#: So many KB of lines are sorted in memory at once.
_SORTED_KB = 30_000
#: The end of the media type in a Content-Type.
_TYPE_END = re.compile(r"[;\s]")


def lines(index: Index, config: PagesConfig) -> Iterator[bytes]:
    """Return the sorted lines of the current pages. Raise TBloomError if ``surt`` is missing."""
    try:
        from surt import surt  # noqa: PLC0415 - AGPL, and only this needs it
    except ModuleNotFoundError:
        raise TBloomError("a CDXJ index needs surt: pip install surt") from None
    return _sorted(_lines(index, config, surt))


def _lines(index: Index, config: PagesConfig, surt: Callable[[str], str]) -> Iterator[bytes]:
    left = None
    for segment, found, page in reading.located_pages(index, config):
        if not segment.name.endswith(ZST):
            yield _line(segment, found, page, surt)
        elif segment != left:
            left = segment
            logger.warning("%s is left out: pywb does not read zstd", index.root / segment.name)


def _line(segment: Segment, found: Found, page: Page, surt: Callable[[str], str]) -> bytes:
    try:
        key = surt(page.url)
    except Exception:  # noqa: BLE001 - surt raises anything; pywb then looks for the URL itself
        key = page.url
    time = "".join(filter(str.isdigit, page.at.isoformat(timespec="seconds")[:19]))
    mime = page.header("Content-Type")
    digest = hashlib.sha1(page.body, usedforsecurity=False).digest()
    fields = {
        "url": page.url,
        **({} if mime is None else {"mime": _TYPE_END.split(mime, maxsplit=1)[0]}),
        "status": f"{page.status}",
        "digest": f"sha1:{b32encode(digest).decode()}",
        "length": f"{found.length}",
        "offset": f"{found.offset}",
        "filename": segment.name,
    }
    return f"{key} {time} {json.dumps(fields)}\n".encode()


def _sorted(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yield lines in order; there may be more than fit into memory. Raise OSError if there is no room for them."""
    # Any thread may take the next line.
    with closing(sqlite3.connect("", check_same_thread=False)) as database, temporary_errors():
        database.execute(f"PRAGMA cache_size = -{_SORTED_KB}")
        database.execute("CREATE TABLE lines (line BLOB)")
        database.executemany("INSERT INTO lines VALUES (?)", ((line,) for line in lines))
        for (line,) in database.execute("SELECT line FROM lines ORDER BY line"):
            yield line

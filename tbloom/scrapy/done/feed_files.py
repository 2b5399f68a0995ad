"""Local files to which feeds append: what earlier crawls have left there, of which one may have been killed."""

from __future__ import annotations

import bz2
import codecs
import csv
import gzip
import json
import logging
import lzma
import re
import zlib
from collections import deque
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from scrapy.extensions.feedexport import FeedSlot, FileFeedStorage
from scrapy.extensions.postprocessing import Bz2Plugin, GzipPlugin, LZMAPlugin
from scrapy.utils.misc import load_object

from tbloom.scrapy.hooks.feeds import (
    Lines,
    continue_csv,
    continued_file,
    how_to_keep,
    lines_of,
    shown_uri,
    writes_document,
)

logger: logging.Logger = logging.getLogger(__name__)

_OPENERS: dict[Any, Any] = {Bz2Plugin: bz2.open, GzipPlugin: gzip.open, LZMAPlugin: lzma.open}
#: So much of a file is read at a time, and of the end of one that needs not be read from its begin (bytes).
_PIECE, _TAIL = 1 << 20, 1 << 16
#: Of a document: it may end anywhere.
_NO_LINES = Lines("latin-1", "")
_REPLACES = "FEEDS: this crawl replaces %s: the file will have the items of its new pages only, and those of earlier pages go: %s"
_WHY = "by a crawler that was killed or still runs, or by a full disk"


def mend(slot: FeedSlot) -> bool:
    """Mend the file to which a new feed appends. Without an item, it then stays as it is. Return False if the feed begins a file."""
    if (path := continued_file(slot)) is None:
        return False
    slot.store_empty = False
    opener, lines = _opener(slot), lines_of(slot)
    if opener is None and ("postprocessing" in slot.feed_options or not lines):
        return True
    with suppress(FileNotFoundError):  # another crawler has just moved it aside
        _mend(path, opener, lines or _NO_LINES)
    return True


def _mend(path: Path, opener: Any, lines: Lines) -> None:
    inode, end = path.stat().st_ino, _End(lines)
    is_whole = _is_read(path, opener, end)
    missing = end.missing if is_whole else None
    # Meanwhile, another crawler may have moved it aside, and begun a new one.
    if path.stat().st_ino != inode:
        return
    if missing is None or (missing and opener):
        why = f"is torn, {_WHY}: nobody could read what is appended"
        _move_aside(path, "torn", why)
    elif missing:
        with path.open("a", encoding=lines.encoding, newline="") as text:
            text.write(missing)
        logger.warning("%s ended in half a line, left %s", path, _WHY)


def warn_of_replacing(slot: FeedSlot) -> None:
    """Say that a feed replaces what earlier crawls have stored. A local file that is not there, or is empty, has nothing to lose."""
    remedy = how_to_keep(type(slot.storage), slot.uri_template, slot.feed_options)
    if not remedy or slot.batch_id > 1:
        return
    if isinstance(slot.storage, FileFeedStorage):
        path = Path(slot.storage.path)
        if not path.is_file() or not path.stat().st_size:
            return
    logger.warning(_REPLACES, shown_uri(slot.uri), remedy)


def begin(slot: FeedSlot, item: Any) -> None:
    """Begin to export items, the first of which is this one. Move an older document aside. A table of CSV gets no second header."""
    path = continued_file(slot)
    if path and writes_document(slot):
        _move_aside(
            path, "older", "holds an older document, whole or not, to which nothing can be appended"
        )
        path = None
    slot.start_exporting()
    exporter: Any = slot.exporter
    if path and hasattr(exporter, "csv_writer"):
        opened = (_opener(slot) or open)(path, "rt", encoding=exporter.encoding, newline="")
        with opened as file, suppress(UnicodeError, csv.Error):  # of an unknown file
            continue_csv(exporter, next(csv.reader(file, exporter.csv_writer.dialect), []), item)


def _opener(slot: FeedSlot) -> Any:
    """Return the function that opens a compressed file; None: it is not compressed, or in an unknown way."""
    plugins = [load_object(plugin) for plugin in slot.feed_options.get("postprocessing", ())]
    return _OPENERS.get(plugins[0]) if len(plugins) == 1 else None


def _is_read(path: Path, opener: Any, end: _End) -> bool:
    """Read the file, of lines only their end if that is enough. Return False if it is compressed, and ends too early."""
    try:
        with (opener or open)(path, "rb") as file:
            if not (
                opener or end.quotes
            ):  # a multiple of 4 begins a character of UTF-16 and UTF-32
                file.seek(max(0, path.stat().st_size - _TAIL) // 4 * 4)
            while data := file.read(_PIECE):
                end.read(data)
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile):
        return False
    except OSError as error:
        if error.errno is None:  # bz2's
            return False
        raise
    return True


class _End:
    """The end of a file that is read in pieces."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        self.quotes: _Quotes | None = _Quotes(lines.dialect) if lines.dialect else None
        self._decoder = codecs.getincrementaldecoder(lines.encoding)("replace")
        self._last, self._has_row = "", False
        #: The last line, of JSON only.
        self._json = ""

    def read(self, data: bytes) -> None:
        text = self._decoder.decode(data)
        last = self._last + text
        self._has_row = self._has_row or "\n" in text or self._lines.end in last
        self._last = last[-10:]
        if self._lines.are_json:
            self._json = (self._json + text).rpartition("\n")[2]
        if self.quotes and text:
            self.quotes.read(text)

    @property
    def missing(self) -> str | None:
        """What the last line lacks of its end, mostly nothing; None: no reader can go on behind it.

        That is within a character, a quoted field, the first row of CSV, which is mostly a header, or a JSON text: pandas and DuckDB
        refuse the whole file for it.
        """
        end = self._lines.end
        if self.quotes and (self.quotes.are_open or not self._has_row):
            return None
        if self._decoder.getstate()[0] or (self._json and not _is_json(self._json)):
            return None
        if self._last.endswith((end, "\n")):
            return ""
        return end.removeprefix("\r") if self._last.endswith("\r") else end


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


class _Quotes:
    """Says whether CSV that is read in pieces ends inside a quoted field, or amid an escape, as Python's reader sees it."""

    def __init__(self, dialect: Any) -> None:
        self._quote = "" if dialect.quoting == csv.QUOTE_NONE else dialect.quotechar or ""
        self._escape = dialect.escapechar or ""
        quote, escape = re.escape(self._quote), re.escape(self._escape)
        starts = re.escape(f"{dialect.delimiter}{dialect.lineterminator}\r\n\ufeff")
        starts += " " * dialect.skipinitialspace
        escaped = [f"{escape}."] * bool(escape)
        found = escaped.copy()
        if quote:
            inside = "|".join(
                [f"[^{quote}{escape}]++", *[quote * 2] * dialect.doublequote, *escaped]
            )
            left = f"{quote}?" + f"{escape}?" * bool(escape)
            found.append(
                rf"(?<=[{starts}]){quote}(?:{inside})*+(?:{quote}(?=.)|(?P<open>{left})\Z)"
            )
        #: A quoted field, or an escape. (What has begun one and did not end yet is ``open``.)
        self._field = re.compile("|".join(found) or "(?!)", re.DOTALL)
        #: What a further piece depends on: the last character, or a quoted field without its text.
        self._last = "\n"

    def read(self, text: str) -> None:
        """Read a piece of the text."""
        text = self._last + text
        last = next(iter(deque(self._field.finditer(text), 1)), None)
        if last is None or last.end() < len(text):
            self._last = text[-1]
        elif last.lastgroup:
            self._last = f"\n{self._quote}{last['open']}"
        else:
            self._last = f"{self._escape}\0"

    @property
    def are_open(self) -> bool:
        """Whether what is appended would belong to the last field. A quote that may be the first of two ends the field."""
        is_escaped = self._last.startswith(self._escape or "\0")
        return is_escaped or self._last[1:] not in ("", self._quote * 2)


def _move_aside(path: Path, what: str, why: str) -> None:
    """Give the file another name, at which nobody else's file is."""
    aside = path.with_name(f"{path.name}.{what}-{datetime.now(UTC):%Y%m%d-%H%M%S-%f}")
    with suppress(FileNotFoundError):  # another crawler has just done so
        path.rename(aside)
        logger.warning("%s %s. It is now %s", path, why, aside.name)

"""Local files to which feeds append: what earlier crawls have left there, of which one may have been killed."""

from __future__ import annotations

import bz2
import csv
import gzip
import json
import logging
import lzma
import zlib
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from io import TextIOWrapper
from pathlib import Path
from typing import Any, TextIO

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
#: A row that no feed has, and the longest field of one that is read before it: all that follows a torn quote is one field.
_ROW, _LONGEST_FIELD = "\ufdd0", 1 << 24
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
    inode, missing = path.stat().st_ino, _missing(path, opener, lines)
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


def _missing(path: Path, opener: Any, lines: Lines) -> str | None:
    """Return what the last line lacks of its end, mostly nothing; None: no reader can go on behind it.

    That is within a character, a quoted field, the first row of CSV, which is mostly a header, or a JSON text: pandas and DuckDB
    refuse the whole file for it. So it is if a compressed file ends too early. Of lines that are no CSV, only the end is read.
    """
    try:
        with (opener or open)(path, "rb") as binary:
            # A multiple of 4 begins a character of UTF-16 and UTF-32.
            if not (opener or lines.dialect):
                binary.seek(max(0, path.stat().st_size - _TAIL) // 4 * 4)
            file = TextIOWrapper(binary, lines.encoding, errors="replace", newline="")
            if lines.dialect:
                return _missing_in_csv(file, lines)
            end = "".join(deque(iter(partial(file.read, _PIECE), ""), 2))
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile):
        return None
    except OSError as error:
        if error.errno is None:  # bz2's
            return None
        raise
    last = end.rpartition("\n")[2]
    return None if lines.are_json and last and not _is_json(last) else _lacks(end, lines)


def _lacks(line: str, lines: Lines) -> str | None:
    """Return what a line lacks of its end; None: it ends within a character."""
    if line.endswith("\ufffd"):
        return None
    if line.endswith((lines.end, "\n")):
        return ""
    return lines.end.removeprefix("\r") if line.endswith("\r") else lines.end


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _missing_in_csv(file: TextIO, lines: Lines) -> str | None:
    """See ``_missing``: append a row, and let Python's reader look for it."""
    lacks: str | None = ""

    def with_a_row() -> Iterator[str]:
        nonlocal lacks
        last = ""
        for line in file:
            if last:
                yield last
            last = line
        lacks = _lacks(last, lines)
        yield last + (lacks or "")
        yield _ROW

    # With others, numbers are converted.
    quoting: Any = csv.QUOTE_NONE if lines.dialect.quoting == csv.QUOTE_NONE else csv.QUOTE_ALL
    limit, number, row = csv.field_size_limit(_LONGEST_FIELD), 0, list[str]()
    try:
        for number, row in enumerate(csv.reader(with_a_row(), lines.dialect, quoting=quoting)):  # noqa: B007
            pass
    except csv.Error:  # as of a longer field
        return None
    finally:
        csv.field_size_limit(limit)
    has_row = number > 1 or not lacks
    return lacks if has_row and row == [_ROW] else None


def _move_aside(path: Path, what: str, why: str) -> None:
    """Give the file another name, at which nobody else's file is."""
    aside = path.with_name(f"{path.name}.{what}-{datetime.now(UTC):%Y%m%d-%H%M%S-%f}")
    with suppress(FileNotFoundError):  # another crawler has just done so
        path.rename(aside)
        logger.warning("%s %s. It is now %s", path, why, aside.name)

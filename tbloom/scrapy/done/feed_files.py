"""Local files to which feeds append: what earlier crawls have left there, of which one may have been killed."""

from __future__ import annotations

import bz2
import csv
import gzip
import logging
import lzma
import zlib
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from scrapy.extensions.feedexport import FeedSlot
from scrapy.extensions.postprocessing import Bz2Plugin, GzipPlugin, LZMAPlugin
from scrapy.utils.misc import load_object

from tbloom.scrapy.hooks.feeds import continue_csv, continued_file, writes_document, writes_lines

logger: logging.Logger = logging.getLogger(__name__)

_OPENERS: dict[Any, Any] = {Bz2Plugin: bz2.open, GzipPlugin: gzip.open, LZMAPlugin: lzma.open}


def mend(slot: FeedSlot) -> bool:
    """Mend the file to which a new feed appends. Without an item, it then stays as it is. Return False if the feed begins a file."""
    if (path := continued_file(slot)) is None:
        return False
    slot.store_empty = False
    if opener := _opener(slot):
        if _is_torn(path, opener):
            why = "is half written, by a crawler that was killed or still runs: nobody could read what is appended"
            _move_aside(path, "torn", why)
    elif writes_lines(slot):
        _end_line(path)
    return True


def begin(slot: FeedSlot, item: Any) -> None:
    """Begin to export items, the first of which is this one. Move an older document aside. A table of CSV gets no second header."""
    path = continued_file(slot)
    if path and writes_document(slot):
        _move_aside(path, "older", "is an older document, to which nothing can be appended")
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


def _is_torn(path: Path, opener: Any) -> bool:
    """Read the file to its end."""
    try:
        with opener(path) as file:
            while file.read(1 << 20):
                pass
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile):
        return True
    except OSError as error:
        if error.errno is None:  # bz2's
            return True
        raise
    return False


def _move_aside(path: Path, what: str, why: str) -> None:
    """Give the file another name, at which nobody else's file is."""
    aside = path.with_name(f"{path.name}.{what}-{datetime.now(UTC):%Y%m%d-%H%M%S-%f}")
    path.rename(aside)
    logger.warning("%s %s. It is now %s", path, why, aside.name)


def _end_line(path: Path) -> None:
    """End the last line of the file, which a crawler that was killed may have left half written."""
    with path.open("rb+") as file:
        file.seek(-1, 2)
        if file.read(1) != b"\n":
            file.write(b"\n")
            message = "%s ended in half a line, which a crawler that was killed has left"
            logger.warning(message, path)

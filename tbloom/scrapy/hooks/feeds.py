"""The feed exporter: its feeds, their files, and whether these hold the items."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from inspect import isawaitable
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

from scrapy import signals
from scrapy.crawler import Crawler
from scrapy.exceptions import NotConfigured
from scrapy.extensions import feedexport
from scrapy.extensions.feedexport import (
    FeedExporter,
    FileFeedStorage,
    FTPFeedStorage,
    GCSFeedStorage,
    S3FeedStorage,
    StdoutFeedStorage,
)
from scrapy.utils.conf import build_component_list
from scrapy.utils.defer import maybe_deferred_to_future
from scrapy.utils.misc import build_from_crawler, load_object
from twisted.internet.defer import Deferred

#: Scrapy's exporters of lines, and the others. Each writes an item into its file at once; JSON's and XML's write only a bracket at
#: their end. (Names, because the module of the classes takes 8 MB.)
_LINES = {"CsvItemExporter", "JsonLinesItemExporter", "PprintItemExporter"}
_JSON_LINES = {"jsonlines", "jsonl", "jl"}
_PICKLES = {"MarshalItemExporter", "PickleItemExporter"}
_AT_ONCE = {"JsonItemExporter", "XmlItemExporter", *_LINES, *_PICKLES}

#: Scrapy's storages of local files.
LOCAL_STORAGES: tuple[Any, ...] = FileFeedStorage, StdoutFeedStorage
#: The module of a package whose storage replaces its file, whatever the option "overwrite" says.
_SFTP = "scrapy_feedexporter_sftp"
#: Placeholders of a feed's URI: of the time; and all that the project may give a value of its own in each crawl. (``%(name)s`` is the
#: spider's.)
_TIME, OWN = re.compile(r"%\((batch_)?time\)"), re.compile(r"%\((?!name\)|batch_id\))")


def watch_feed(
    slot: Any, takes: Callable[[Any, Any], object], ended: Callable[[Any, bool], object]
) -> None:
    """Tell what becomes of a feed's items.

    ``takes``: called with the feed and an item that it is about to export; without the item (None) if its filter has raised an
    exception, or if its file is stored already: after the exception of another feed's filter, Scrapy goes on to add to the file of a
    full batch. ``ended``: called with the feed, and whether the storage has stored the file; or whether the exporter could not write
    its end, whereupon Scrapy neither stores the file nor says so.

    Without it, pages with items in feeds that are stored at their end fail. Others are committed though a filter, an exporter, or an
    exporter's end has raised an exception, which Scrapy only logs.
    """
    slot.filter = watched = _WatchedFilter(slot, takes)
    finish, storage = slot.finish_exporting, slot.storage
    store = storage.store

    def finish_watched() -> None:
        watched.closed_at = time.monotonic()
        try:
            finish()
        except BaseException:
            ended(slot, False)  # noqa: FBT003 - of a callable
            raise

    def note(result: Any) -> Any:
        ended(slot, True)  # noqa: FBT003
        return result

    async def note_later(storing: Any) -> Any:
        return note(await storing)

    def store_watched(file: Any) -> Any:
        result = store(file)
        if isinstance(result, Deferred):
            return result.addCallback(note)
        return note_later(result) if isawaitable(result) else note(result)

    slot.finish_exporting, storage.store = finish_watched, store_watched


class _WatchedFilter:
    """A feed's filter. Scrapy exports an item right after it was accepted."""

    def __init__(self, slot: Any, takes: Callable[[Any, Any], object]) -> None:
        self._slot, self._filter, self._takes = slot, slot.filter, takes
        #: When the feed was closed (monotonic); 0: it was not.
        self.closed_at = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._filter, name)

    def accepts(self, item: Any) -> bool:
        try:
            is_accepted: bool = self._filter.accepts(item)
        except Exception:
            self._takes(self._slot, None)
            raise
        if is_accepted:
            self._takes(self._slot, None if self.closed_at else item)
        return is_accepted


def closed_at(slot: Any) -> float:
    """Return when a feed was closed (monotonic), which its storage stores from then on; 0: it was not, or this is no feed."""
    at: float = getattr(getattr(slot, "filter", None), "closed_at", 0.0)
    return at


def feed_slots(crawler: Crawler) -> list[Any]:
    """Return the feeds that are open, each with its file. Without it, pages are committed before their items are in the file."""
    return getattr(crawler.get_extension(FeedExporter), "slots", [])


async def close_feeds(crawler: Crawler) -> None:
    """Store the feeds before ``spider_closed`` is sent, at which the exporter does so.

    Without it, handlers of that signal don't know of the pages whose items are stored by then.
    """
    exporter: Any = crawler.get_extension(FeedExporter)
    if exporter is not None:
        crawler.signals.disconnect(exporter.close_spider, signals.spider_closed)
        closing = exporter.close_spider(crawler.spider)  # a project's own may return anything
        if isinstance(closing, Deferred):
            await maybe_deferred_to_future(closing)
        elif isawaitable(closing):
            await closing


def open_no_feeds(crawler: Crawler) -> None:
    """Keep the feeds' files as they are in a crawl that can't begin. Without it, Scrapy empties those that it is to overwrite."""
    extensions: Any = None
    with suppress(RuntimeError):  # they are not made yet
        extensions = crawler.extensions
    for extension in getattr(extensions, "middlewares", ()):
        if isinstance(extension, FeedExporter):
            crawler.signals.disconnect(extension.open_spider, signals.spider_opened)
            extension.slots.clear()


def unopened_feed(crawler: Crawler) -> str:
    """Return which feed is not open, or why; "" if all are, or if the project has a feed exporter of its own.

    Without it, Scrapy logs an ERROR, and the crawl stores nothing.
    """
    exporter = crawler.get_extension(FeedExporter)
    if exporter is None:
        extensions = build_component_list(crawler.settings.getwithbase("EXTENSIONS"))
        return refused_feed(crawler) if FeedExporter in map(load_object, extensions) else ""
    if type(exporter).open_spider is not FeedExporter.open_spider:
        return ""
    return next(iter([*exporter.feeds][len(exporter.slots) :]), "")


def refused_feed(crawler: Crawler) -> str:
    """Return why the feed exporter refuses a feed of the settings, which it only logs; "": it refuses none."""
    said = [""]

    def keep(record: logging.LogRecord) -> bool:
        said.append(record.getMessage())
        return False

    feedexport.logger.addFilter(keep)
    try:
        FeedExporter(crawler)
    except NotConfigured:
        return said[-1]
    finally:
        feedexport.logger.removeFilter(keep)
    return ""


def items_taken(slot: Any) -> int:
    """Return how many items a feed has taken. Without it, pages are committed before their items are uploaded."""
    return getattr(slot, "itemcount", 0)


def flush_feed(slot: Any) -> None:
    """Write what a feed keeps in memory into its file. Raise its OSError. Without it, a kill may lose items of committed pages."""
    file = getattr(slot, "file", None)
    if file is not None and not file.closed:
        file.flush()


def _scrapys(exporter: Any) -> Any:
    """Return the class of Scrapy's own from which an exporter derives, or ``object``."""
    classes = getattr(exporter, "__mro__", ())
    return next((each for each in classes if each.__module__ == "scrapy.exporters"), object)


def is_local_feed(slot: Any) -> bool:
    """Return whether the classes of a feed are known to write each item into a local file as it comes.

    A class that ends a file in its own way may keep items until then; a storage of its own, or a compressed file, has them at its
    end only. Without it, pages are committed once their feed is closed.
    """
    exporter, storage = slot.exporters.get(slot.format), type(slot.storage)
    base = _scrapys(exporter)
    return (
        "postprocessing" not in slot.feed_options
        and base.__name__ in _AT_ONCE
        and exporter.finish_exporting is base.finish_exporting
        and any(
            issubclass(storage, kind) and (storage.open, storage.store) == (kind.open, kind.store)
            for kind in LOCAL_STORAGES
        )
    )


def continued_file(slot: Any) -> Path | None:
    """Return the file to which a feed appends, which is not empty; None if it begins one.

    Without it, the first item may continue half a line, which a crawler that was killed has left.
    """
    storage = getattr(slot, "storage", None)
    if not isinstance(storage, FileFeedStorage) or storage.write_mode != "ab":
        return None
    path = Path(storage.path)
    with suppress(FileNotFoundError):  # another crawler has just moved it aside
        if path.is_file() and path.stat().st_size:
            return path
    return None


class Lines(NamedTuple):
    """How a feed writes its lines."""

    encoding: str
    #: What ends a line.
    end: str
    #: The dialect of csv, for CSV only.
    dialect: Any = None
    #: Whether each line is a JSON text.
    are_json: bool = False


def lines_of(slot: Any) -> Lines | None:
    """Return how a feed writes lines; None: it writes none, or its exporter can't be made.

    An exporter of the project's own may choose its encoding and its dialect, so one is made, which writes nothing. Without it, nobody
    knows where a line ends.
    """
    kind, options, exporter = slot.exporters.get(slot.format), slot.feed_options, None
    if (name := _scrapys(kind).__name__) not in _LINES:
        return None
    with suppress(Exception):  # Scrapy logs it for each item
        exporter = build_from_crawler(
            kind,
            slot.crawler,
            BytesIO(),
            fields_to_export=options["fields"],
            encoding=options["encoding"],
            indent=options["indent"],
            **options["item_export_kwargs"],
        )
    if exporter is None:
        return None
    dialect = exporter.csv_writer.dialect if hasattr(exporter, "csv_writer") else None
    encoding = "" if name == "PprintItemExporter" else exporter.encoding
    end = dialect.lineterminator if dialect else "\n"
    return Lines(encoding or "utf-8", end, dialect, name == "JsonLinesItemExporter")


def writes_document(slot: Any) -> bool:
    """Return whether nobody can read a file to which a feed has appended.

    An exporter of the project's own that writes nothing at its end may be for lines.
    """
    exporter = slot.exporters.get(slot.format)
    name = _scrapys(exporter).__name__
    finish = getattr(exporter, "finish_exporting", None)
    writes_end = getattr(finish, "__qualname__", "") != "BaseItemExporter.finish_exporting"
    # A pickle that was cut hides later ones.
    return name in _PICKLES or (name not in _LINES and writes_end)


def how_to_keep(storage: type, uri: str, options: Mapping[str, Any]) -> str:
    """Return how to keep what earlier crawls have stored, if each crawl replaces the feed's file; "": none does, or it is not known.

    ``uri``: as it stands in FEEDS. Without it, nobody is told that only the new pages of one crawl are there.
    """
    is_local, is_ftp = (issubclass(storage, kind) for kind in (LOCAL_STORAGES, FTPFeedStorage))
    has_no_choice = (
        issubclass(storage, S3FeedStorage | GCSFeedStorage)
        or storage.__module__.partition(".")[0] == _SFTP
    )
    replaces = has_no_choice or options.get("overwrite", is_ftp)
    has_own_name = _TIME.search(uri) or (options.get("uri_params") and OWN.search(uri))
    if not replaces or has_own_name or issubclass(storage, StdoutFeedStorage):
        return ""
    name = "put %(time)s into its name"
    appends = is_local or (is_ftp and options["format"] in _JSON_LINES)
    return f"set 'overwrite': False, or {name}" if appends else name


def shown_uri(uri: str) -> str:
    """Return a feed's URI without a user and a password."""
    return re.sub(r"(?<=://).*@", "***@", uri)


def continue_csv(exporter: Any, header: list[str], item: Any) -> None:
    """Let an exporter write rows under this header, if its columns are those of the item. Without it, each crawl writes a header."""
    from itemadapter import ItemAdapter  # noqa: PLC0415 - the exporter has imported it

    fields = exporter.fields_to_export
    names = [
        *(
            fields.values()
            if isinstance(fields, Mapping)
            else fields or ItemAdapter(item).field_names()
        )
    ]
    if not fields and {*names} <= {*header}:
        exporter.fields_to_export = header
        exporter._autodetected_fields = True  # noqa: SLF001 - Scrapy warns of other fields
    elif names != header:
        return
    exporter.include_headers_line = False

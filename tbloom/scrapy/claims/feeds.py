"""Where items wait that have passed the pipelines, and would be lost if the crawler died now."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from scrapy import signals
from scrapy.crawler import Crawler
from scrapy.extensions.feedexport import (
    FeedExporter,
    FeedSlot,
    FileFeedStorage,
    StdoutFeedStorage,
)
from scrapy.utils.defer import maybe_deferred_to_future
from twisted.internet.defer import Deferred

from tbloom.scrapy.compat import feed_slots
from tbloom.scrapy.signals import items_buffered, items_flushed

logger: logging.Logger = logging.getLogger(__name__)

#: Feeds to which later crawls may append, line by line.
_LINES = {"csv", "jl", "jsonl", "jsonlines"}


class Feeds:
    """The places of one crawl: feeds and pipelines that keep items until they store them all, or lose them.

    A feed in a local file is none: it is flushed. Any other feed (S3, FTP, compressed ones) is a place until Scrapy has
    stored it; so is a pipeline that sends ``items_buffered``. ``stored`` is called when a place has stored its items, or has
    lost them.
    """

    def __init__(self, crawler: Crawler, stored: Callable[[], object]) -> None:
        self._crawler, self._stored = crawler, stored
        #: The places that keep items, among them the pipelines' memory; and the feeds that have lost theirs.
        self._open, self._lost = set[object](), set[object]()
        self._buffer: object | None = None
        self._failures = 0
        self._all_closed: Deferred[None] = Deferred()
        connect = crawler.signals.connect
        connect(self._opened, signals.spider_opened)
        connect(self._feed_closed, signals.feed_slot_closed)
        connect(self._exporter_closed, signals.feed_exporter_closed)
        connect(self._buffered, items_buffered)
        connect(self._flushed, items_flushed)

    def places(self) -> set[object]:
        """The places of an item that has just passed the pipelines."""
        for feed in feed_slots(self._crawler):
            if feed.itemcount and not _is_flushed(feed):
                self._open.add(feed)
        return {*self._open}

    def keep(self, places: set[object]) -> bool:
        """Whether items are in one of these places still."""
        return not places.isdisjoint(self._open)

    def have_lost(self, places: set[object]) -> bool:
        """Whether one of these places has lost its items."""
        return not places.isdisjoint(self._lost)

    def flush(self) -> None:
        """Flushes the local files. Raises their OSError."""
        for feed in feed_slots(self._crawler):
            if _is_flushed(feed) and feed.file is not None and not feed.file.closed:
                feed.file.flush()

    async def closed(self) -> None:
        """Returns once all feeds are stored."""
        if self._crawler.get_extension(FeedExporter):
            await maybe_deferred_to_future(self._all_closed)

    def _opened(self) -> None:
        for feed in feed_slots(self._crawler):
            if isinstance(feed.storage, FileFeedStorage) and _is_flushed(feed):
                _end_line(feed)

    def _feed_closed(self, slot: FeedSlot) -> None:
        stats = self._crawler.stats.get_stats() if self._crawler.stats else {}
        failures = sum(stats[name] for name in stats if name.startswith("feedexport/failed_count/"))
        if failures > self._failures:
            self._lost.add(slot)
        self._failures = failures
        self._empty(slot)

    def _exporter_closed(self) -> None:
        self._all_closed.callback(None)

    def _buffered(self) -> None:
        self._buffer = self._buffer or object()
        self._open.add(self._buffer)

    def _flushed(self) -> None:
        self._empty(self._buffer)
        self._buffer = None

    def _empty(self, place: object) -> None:
        self._open.discard(place)
        self._stored()


def _is_flushed(feed: FeedSlot) -> bool:
    """The feed is written to a local file as items come."""
    is_local = isinstance(feed.storage, FileFeedStorage | StdoutFeedStorage)
    return is_local and "postprocessing" not in feed.feed_options


def _end_line(feed: FeedSlot) -> None:
    """Ends the last line of the file, which a crawler that was killed may have left half written."""
    storage: Any = feed.storage
    path = Path(storage.path)
    if feed.format not in _LINES or storage.write_mode != "ab" or not path.is_file():
        return
    with path.open("rb+") as file:
        if file.seek(0, 2) and file.seek(-1, 2) and file.read(1) != b"\n":
            file.write(b"\n")
            logger.warning(
                "%s ended in half a line, which a crawler that was killed has left", path
            )

"""Where items wait that have passed the pipelines, and would be lost if the crawler died now."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scrapy import signals
from scrapy.extensions.feedexport import FeedExporter, FileFeedStorage, StdoutFeedStorage
from scrapy.utils.defer import maybe_deferred_to_future
from twisted.internet.defer import Deferred

from tbloom.scrapy.compat import feed_slots
from tbloom.scrapy.signals import items_buffered, items_flushed

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy.crawler import Crawler
    from scrapy.extensions.feedexport import FeedSlot

logger: logging.Logger = logging.getLogger(__name__)

#: Feeds to which later crawls may append, line by line.
_LINES = {"csv", "jl", "jsonl", "jsonlines"}


class Feeds:
    """The places of one crawl: feeds and pipelines that keep items until they store them all, or lose them.

    A feed in a local file is none: it is flushed. Any other feed (S3, FTP, compressed ones) is a place until Scrapy has
    stored it; so is a pipeline that sends ``items_buffered``.
    """

    def __init__(self, crawler: Crawler, stored: Callable[[], object]) -> None:
        #: ``stored`` is called when a place has stored its items, or has lost them.
        self._crawler, self._stored = crawler, stored
        #: The feeds that are not closed yet; those that have lost their items; and a pipeline's items in memory.
        self._feeds: set[FeedSlot] = set()
        self._lost = set[object]()
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
        self._feeds.update(feed_slots(self._crawler))
        late = {feed for feed in self._feeds if feed.itemcount and not _is_flushed(feed)}
        return {*late, self._buffer} if self._buffer else {*late}

    def keep(self, places: set[object]) -> bool:
        """Whether items are in one of these places still."""
        return not places.isdisjoint({*self._feeds, self._buffer})

    def have_lost(self, places: set[object]) -> bool:
        """Whether one of these places has lost its items."""
        return not places.isdisjoint(self._lost)

    def flush(self) -> None:
        """Flushes the local files. Raises their OSError."""
        for feed in self._feeds:
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
        self._feeds.discard(slot)
        stats = self._crawler.stats.get_stats() if self._crawler.stats else {}
        failures = sum(stats[name] for name in stats if name.startswith("feedexport/failed_count/"))
        if failures > self._failures:
            self._lost.add(slot)
        self._failures = failures
        self._stored()

    def _exporter_closed(self) -> None:
        self._all_closed.callback(None)

    def _buffered(self) -> None:
        self._buffer = self._buffer or object()

    def _flushed(self) -> None:
        self._buffer = None
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

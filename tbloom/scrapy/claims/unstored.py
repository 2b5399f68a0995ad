"""Items that have passed the pipelines, and would be lost if the crawler died now."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scrapy import signals
from scrapy.extensions.feedexport import FeedExporter, FileFeedStorage, StdoutFeedStorage
from scrapy.utils.defer import maybe_deferred_to_future
from twisted.internet.defer import Deferred

from tbloom.scrapy.signals import items_buffered, items_flushed

if TYPE_CHECKING:
    from scrapy.crawler import Crawler
    from scrapy.extensions.feedexport import FeedSlot

logger = logging.getLogger(__name__)

#: Feeds to which later crawls may append, line by line.
_LINES = {"csv", "jl", "jsonl", "jsonlines"}


class UnstoredItems:
    """The places in which items of one crawl's pages wait until they are stored.

    A feed in a local file is flushed. Any other feed (S3, FTP, compressed ones) is a place until Scrapy has stored it;
    so is a pipeline that sends ``items_buffered``.
    """

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._exporter: Any = None
        #: The feeds that are not closed yet.
        self._feeds: set[FeedSlot] = set()
        self._buffer: object = None
        #: The places in which items of a page wait, by the page's first fingerprint.
        self._places: dict[str, set[object]] = {}
        #: The pages of which items were lost.
        self._lost: set[str] = set()
        self._failures = 0
        self._all_closed: Deferred[None] = Deferred()
        connect = crawler.signals.connect
        connect(self._opened, signals.spider_opened)
        connect(self._feed_closed, signals.feed_slot_closed)
        connect(self._exporter_closed, signals.feed_exporter_closed)
        connect(self._buffered, items_buffered)
        connect(self._flushed, items_flushed)

    def add(self, page: str) -> None:
        """An item of the page has passed the pipelines, and is in the feeds."""
        self._feeds.update(self._exporter.slots if self._exporter else ())
        places = self._places.setdefault(page, set())
        places.update(feed for feed in self._feeds if feed.itemcount and not _is_flushed(feed))
        if self._buffer is not None:
            places.add(self._buffer)

    def flush(self) -> None:
        """Writes what waits for local files. Raises OSError."""
        for feed in self._feeds:
            if _is_flushed(feed) and feed.file is not None and not feed.file.closed:
                feed.file.flush()

    def has_items(self, page: str) -> bool:
        """The page has yielded items."""
        return page in self._places

    def wait(self, page: str) -> bool:
        """Items of the page wait."""
        return bool(self._places.get(page))

    def take(self, page: str) -> bool:
        """Forgets the page; returns False if items of it were lost."""
        self._places.pop(page, None)
        was_lost = page in self._lost
        self._lost.discard(page)
        return not was_lost

    async def closed(self) -> None:
        """Returns once all feeds are stored."""
        if self._exporter:
            await maybe_deferred_to_future(self._all_closed)

    def _opened(self) -> None:
        self._exporter = self._crawler.get_extension(FeedExporter)
        for feed in self._exporter.slots if self._exporter else ():
            self._feeds.add(feed)
            if isinstance(feed.storage, FileFeedStorage) and _is_flushed(feed):
                _end_line(feed)

    def _feed_closed(self, slot: FeedSlot) -> None:
        self._feeds.discard(slot)
        stats = self._crawler.stats.get_stats() if self._crawler.stats else {}
        failures = sum(stats[name] for name in stats if name.startswith("feedexport/failed_count/"))
        self._leave(slot, are_lost=failures > self._failures)
        self._failures = failures

    def _exporter_closed(self) -> None:
        self._all_closed.callback(None)

    def _buffered(self) -> None:
        self._buffer = self._buffer or object()

    def _flushed(self) -> None:
        place, self._buffer = self._buffer, None
        self._leave(place, are_lost=False)

    def _leave(self, place: object, *, are_lost: bool) -> None:
        for page, places in self._places.items():
            if place in places:
                places.discard(place)
                if are_lost:
                    self._lost.add(page)


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

"""An item pipeline."""

from __future__ import annotations

from typing import IO, Any

from scrapy.extensions.feedexport import BlockingFeedStorage

from tbloom.scrapy.signals import items_buffered, items_flushed
from tests.helpers.crawl import Part


class Uploads(BlockingFeedStorage):
    """A storage that stores a feed at its end, or fails."""

    def __init__(self, uri: str, *, feed_options: Any = None) -> None:  # noqa: ARG002 - Scrapy gives it
        self._uri = uri

    def _store_in_thread(self, file: IO[bytes]) -> None:
        file.close()
        if "fails" in self._uri:
            raise OSError("no such bucket")


class Buffers(Part):
    """Keeps all items until the spider closes; BUFFERS_FLUSH says whether it stores them then."""

    def process_item(self, item: Any) -> Any:
        self.crawler.signals.send_catch_log(items_buffered)
        return item

    def close_spider(self) -> None:
        if self.crawler.settings.getbool("BUFFERS_FLUSH"):
            self.crawler.signals.send_catch_log(items_flushed)


class Fates(Part):
    """Does with each item what its ``fate`` says."""

    def process_item(self, item: dict[str, Any]) -> dict[str, Any]:
        if item["fate"] == "fails":
            raise ZeroDivisionError
        return item

"""Which feeds and pipelines have taken the items of pages, and whether they have stored them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from scrapy import signals
from scrapy.crawler import Crawler
from scrapy.extensions.feedexport import FeedSlot

from tbloom.scrapy.crawl import crawl_of
from tbloom.scrapy.done.feed_files import begin, mend, warn_of_replacing
from tbloom.scrapy.done.page import EndedPage
from tbloom.scrapy.hooks.feeds import (
    feed_slots,
    flush_feed,
    is_local_feed,
    items_taken,
    shown_uri,
    watch_feed,
)
from tbloom.scrapy.signals import items_buffered, items_flushed

logger: logging.Logger = logging.getLogger(__name__)

_UNNAMED = (
    "A pipeline sends items_buffered without pipeline=self: if two of them do, one's items_flushed also commits the pages "
    "whose items the other one still keeps"
)


#: In place of a holder: the items of a page are lost.
LOST = object()


@dataclass(eq=False)
class Buffer:
    """What a pipeline keeps in memory, from ``items_buffered`` to ``items_flushed``; or an item that a feed has lost."""

    #: Whose it is.
    name: str


class StoredItems:
    """Knows the holders of items, the feed slots and the buffers of pipelines, and for each whether it has stored its items."""

    def __init__(self, crawler: Crawler, when_ended: Callable[[object], object]) -> None:
        """``when_ended``: called with a holder that has stored its items, or has lost them."""
        self._crawler, self._when_ended = crawler, when_ended
        #: The open feed slots, each with the number of items that it had after the last item.
        self._counts: dict[FeedSlot, int] = {}
        #: Feeds whose items are in a local file once it is flushed, and those that append to a file.
        self._local, self._appending = WeakSet[FeedSlot](), WeakSet[FeedSlot]()
        #: The feed slots that have accepted the item that passes now, and those that have lost it.
        self._accepted, self._refused = set[FeedSlot](), set[FeedSlot]()
        #: The holders that have stored their items (True), or have lost them (False). A holder that still keeps items is not here.
        self._has_stored: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()
        #: The buffers, by the identities of their pipelines (which may not be hashable), or of None for all that send no ``pipeline``.
        self._buffers: dict[int, Buffer] = {}
        connect = crawler.signals.connect
        connect(self._watch_slots, signals.spider_opened)
        connect(self._slot_closed, signals.feed_slot_closed)
        connect(self._items_buffered, items_buffered)
        connect(self._items_flushed, items_flushed)

    def took_item(self) -> set[object]:
        """Return the holders of the item that has just passed the pipelines. Call it once for each item, after the feed exporter."""
        holders = set[object]()
        for slot, count in self._counts.items():
            self._counts[slot] = items_taken(slot)
            if self._counts[slot] > count:
                holders.add(slot)
        # An exporter or a filter has raised an exception, or a file is closed.
        for slot in self._refused | (self._accepted - holders):
            lost = Buffer(_name_of(slot))
            self._has_stored[lost] = False
            holders.add(lost)
        self._accepted.clear()
        self._refused.clear()
        if self._counts.keys() != {*feed_slots(self._crawler)}:
            self._watch_slots()
        return {*holders, *self._buffers.values()}

    @property
    def buffers(self) -> list[Buffer]:
        """The buffers of pipelines that keep items now."""
        return [*self._buffers.values()]

    def holder_of(self, page: EndedPage) -> object | None:
        """Return a holder that still keeps items of the page; None: all have stored them; LOST: one has lost some.

        An open feed in a local file does not count, because ``flush`` stores its items.
        """
        for holder in page.holders:
            is_flushed = holder in self._local and holder in self._counts
            if holder not in self._has_stored and not is_flushed:
                return holder
        return LOST if False in map(self._has_stored.get, page.holders) else None

    def lost_by(self, page: EndedPage) -> str:
        """Return what has lost items of the page: feeds, and pipelines that buffer."""
        lost = {_name_of(each) for each in page.holders if self._has_stored.get(each) is False}
        return f"not stored by {', '.join(sorted(lost))}"

    def flush(self) -> None:
        """Flush the local files. Raise their OSError."""
        for slot in self._counts:
            if slot in self._local:
                flush_feed(slot)

    def lose_buffers(self) -> None:
        """Count as lost what pipelines still keep, because they are closed."""
        while self._buffers:
            _, buffer = self._buffers.popitem()
            self._has_stored[buffer] = False
            self._when_ended(buffer)

    def _watch_slots(self) -> None:
        """Watch new slots, whose files are mended, and forget slots that are closed."""
        slots = feed_slots(self._crawler)
        for slot in slots:
            if slot not in self._counts:
                watch_feed(slot, self._takes_item, self._feed_ended)
                if is_local_feed(slot):
                    self._local.add(slot)
                try:
                    if mend(slot):
                        self._appending.add(slot)
                    warn_of_replacing(slot)
                except OSError as error:  # a full disk; nothing is committed any more
                    logger.error("The crawl ends: the file of a feed can't be mended: %s", error)
                    engine: Any = self._crawler.engine
                    crawl_of(self._crawler).end(before_start=not engine.running)
        self._counts = {slot: items_taken(slot) for slot in slots}

    def _takes_item(self, slot: FeedSlot, item: Any) -> None:
        (self._refused if item is None else self._accepted).add(slot)
        if item is not None and slot.file is None and slot in self._appending:
            begin(slot, item)

    def _feed_ended(self, slot: FeedSlot, is_stored: bool) -> None:  # noqa: FBT001 - of a callable
        self._has_stored[slot] = is_stored
        if not is_stored:
            self._when_ended(slot)

    def _slot_closed(self, slot: FeedSlot) -> None:
        self._has_stored.setdefault(slot, False)
        self._when_ended(slot)

    def _items_buffered(self, pipeline: object = None) -> None:
        if pipeline is None:
            crawl_of(self._crawler).log_once(logger.warning, _UNNAMED)
        name = "a pipeline" if pipeline is None else type(pipeline).__qualname__
        self._buffers.setdefault(id(pipeline), Buffer(name))

    def _items_flushed(self, pipeline: object = None) -> None:
        if buffer := self._buffers.pop(id(pipeline), None):
            self._has_stored[buffer] = True
            self._when_ended(buffer)


def _name_of(holder: object) -> str:
    return holder.name if isinstance(holder, Buffer) else shown_uri(getattr(holder, "uri", ""))

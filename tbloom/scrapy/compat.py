"""What tbloom needs of Scrapy beyond its documented ways, a function for each; tested with the oldest and the newest Scrapy.

And which installed versions the tests do not know.
"""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import Callable
from typing import Any

import redis
import scrapy
from scrapy.crawler import Crawler
from scrapy.extensions.feedexport import FeedExporter
from scrapy.pipelines import ItemPipelineManager
from scrapy.utils.asyncio import call_later, is_asyncio_available
from scrapy.utils.defer import maybe_deferred_to_future
from twisted.internet.defer import Deferred

from tbloom.version import NEWEST_TESTED


def untested_versions() -> list[str]:
    """Return a line for each of Scrapy and redis-py that is newer than tbloom's tests know."""
    lines = []
    for name, library in {"Scrapy": scrapy, "redis-py": redis}.items():
        major, minor = NEWEST_TESTED[library.__name__]
        numbers = re.findall(r"\d+", library.__version__)  # of 2.20rc1: 2, 20 and 1
        if (*map(int, numbers[:2]),) > (major, minor):
            newest = f"{major}.{minor}, the newest that tbloom's tests have seen"
            lines.append(f"{name} {library.__version__} is newer than {newest}")
    return lines


def scheduler_of(engine: Any) -> Any:
    """The engine's scheduler, which is public from Scrapy 2.19 on; without it, scrapy-redis' queue is cleared where a crawl can't begin."""
    if hasattr(engine, "scheduler"):
        return engine.scheduler
    return getattr(getattr(engine, "_slot", None), "scheduler", None)


def look_again(engine: Any) -> None:
    """Makes the engine ask its scheduler for requests; without it, it does so at the next response, or after 5 seconds."""
    nextcall = getattr(getattr(engine, "_slot", None), "nextcall", None)
    if nextcall is not None:
        nextcall.schedule()


def feed_slots(crawler: Crawler) -> list[Any]:
    """The feeds that are open, each with its file; without it, pages are marked before their items are flushed to the file."""
    return getattr(crawler.get_extension(FeedExporter), "slots", [])


def is_asked_async(processor: Any) -> bool:
    """Whether Scrapy calls the item processor's ``process_item_async``, not the ``process_item`` of earlier versions."""
    usual = ItemPipelineManager
    is_own = getattr(processor, "process_item", None) not in (None, usual.process_item)
    asynchronous = getattr(processor, "process_item_async", None)
    return asynchronous is not None and not (is_own and asynchronous is usual.process_item_async)


def is_trial(crawler: Crawler) -> bool:
    """True under ``scrapy shell``, ``parse``, ``fetch`` and ``check``, which try a spider, and leave no trace on Redis.

    The shell makes a crawler that does not crawl, the others give the spider another start.
    """
    return not crawler.crawling or crawler.spidercls.start.__module__.startswith("scrapy.commands.")


def is_told_to_end() -> bool:
    """Whether Scrapy has caught a signal, which it handles once the crawl waits for nothing: it ignores those after the second.

    Without it, a crawl that waits for Redis ends after ``TBLOOM_RETRY_FOR``.
    """
    handler = signal.getsignal(signal.SIGTERM)
    return handler is signal.SIG_IGN or getattr(handler, "__name__", "").startswith("_signal_kill")


async def wait_until_closed(sender: Any) -> None:
    """Wait at ``engine_stopped`` until the spider is closed; ``sender`` is the crawler.

    A signal that comes while the spider closes ends Scrapy's event loop before feeds are stored and pages are marked.
    """
    while sender.engine.spider is not None:
        pause: Deferred[None] = Deferred()
        call_later(0.01, pause.callback, None)
        await maybe_deferred_to_future(pause)


def in_loop() -> Callable[..., Any]:
    """A function that other threads call with a function and its arguments, which the event loop then calls."""
    if is_asyncio_available():
        return asyncio.get_running_loop().call_soon_threadsafe
    from twisted.internet import reactor  # noqa: PLC0415 - the import installs one where there is none

    return reactor.callFromThread  # type: ignore[no-any-return]

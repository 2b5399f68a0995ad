"""The engine and the process: how a crawl is woken, when it is idle, and how it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from scrapy import Spider
from scrapy.crawler import Crawler
from scrapy.utils.asyncio import call_later
from scrapy.utils.defer import maybe_deferred_to_future
from twisted.internet.defer import Deferred


def is_idle(engine: Any) -> bool:
    """Return whether the engine has nothing to do. Without it, an idle crawl ends while others' pages may have to be taken over."""
    return bool(engine and hasattr(engine, "spider_is_idle") and engine.spider_is_idle())


def is_downloading(engine: Any) -> bool:
    """Return whether the engine downloads something. Without it, left pages may be fetched while a slow login is under way."""
    return bool(getattr(getattr(engine, "downloader", None), "active", ()))


def wake_engine(engine: Any) -> None:
    """Make the engine ask its scheduler for requests. Without it, it does so at the next response, or after 5 seconds."""
    nextcall = getattr(getattr(engine, "_slot", None), "nextcall", None)
    # An engine that has not opened its scraper yet begins by itself.
    if nextcall is not None and getattr(getattr(engine, "scraper", None), "slot", None):
        nextcall.schedule()


async def wait_until_closed(sender: Any) -> None:
    """Wait at ``engine_stopped`` until the spider is closed; ``sender`` is the crawler.

    Without it, a signal that comes while the spider closes ends Scrapy's event loop before feeds are stored and pages are committed.
    """
    while sender.engine.spider is not None:
        pause: Deferred[None] = Deferred()
        call_later(0.01, pause.callback, None)
        await maybe_deferred_to_future(pause)


def exit_with_failure(sender: Any) -> None:
    """Let ``scrapy crawl`` exit with 1, at ``engine_stopped``; ``sender`` is the crawler, which then seems to have had no spider.

    Without it, the command exits with 0, and only the log and ``finish_reason`` say that an error has ended the crawl.
    """
    sender.spider = None


def is_trial(crawler: Crawler) -> bool:
    """Return whether this is ``scrapy shell``, ``parse``, ``fetch`` or ``check``, which try a spider, and leave no trace on Redis.

    The shell makes a crawler that does not crawl, the others give the spider another start. Without it, what they try is marked.
    """
    return not crawler.crawling or crawler.spidercls.start.__module__.startswith("scrapy.commands.")


def keep_spider_arguments() -> None:
    """Let each crawler keep the arguments with which it makes its spider. Call this once, before any spider is made.

    Scrapy keeps them nowhere. Without it, crawls of one spider share their pages whatever its arguments are.
    """
    create = Crawler._create_spider  # noqa: SLF001 - what crawl and crawl_async have in common

    def create_spider(crawler: Crawler, *args: Any, **kwargs: Any) -> Spider:
        numbered = {str(n): value for n, value in enumerate(args)}
        vars(crawler)["tbloom_arguments"] = {**numbered, **kwargs}
        return create(crawler, *args, **kwargs)

    Crawler._create_spider = create_spider  # type: ignore[method-assign, assignment] # noqa: SLF001


def spider_arguments(crawler: Crawler) -> dict[str, Any] | None:
    """Return the arguments with which the crawler has made its spider; None: it did so before ``keep_spider_arguments``."""
    return vars(crawler).get("tbloom_arguments")


def call_soon(call: Callable[..., object], *arguments: Any) -> None:
    """Call a function in the next turn of the event loop."""
    call_later(0, call, *arguments)


async def next_turn() -> None:
    """Wait for the next turn of the event loop."""
    turn: Deferred[None] = Deferred()
    call_later(0, turn.callback, None)
    await maybe_deferred_to_future(turn)


def in_loop() -> Callable[..., Any]:
    """Return a function that other threads call with a function and its arguments, which the event loop then calls."""
    with suppress(RuntimeError):  # another reactor
        return asyncio.get_running_loop().call_soon_threadsafe
    from twisted.internet import reactor  # noqa: PLC0415 - the import installs one where there is none

    return reactor.callFromThread  # type: ignore[no-any-return]

"""Gathers the requests that a callback, or the start, yields without waiting, and asks for them in one call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from scrapy.utils.asyncio import is_asyncio_available

from tbloom.scrapy.dupefilter.prefetch import prefetches

if TYPE_CHECKING:
    from scrapy.crawler import Crawler
    from scrapy.http import Response
    from typing_extensions import Self

T = TypeVar("T")

#: Limits for the requests of a response, and of the start, that are held back.
_LIMIT, _LIMIT_AT_START = 500, 50


class BatchMiddleware:
    """Spider middleware: prefetches the answers for batches of requests."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Scrapy's constructor."""
        return cls(crawler)

    async def process_start(self, start: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """The start requests, in their order."""
        async for one in self._batched(start, _LIMIT_AT_START):
            yield one

    async def process_spider_output(
        self, response: Response, result: AsyncIterator[Any]
    ) -> AsyncIterator[Any]:
        """What the callback yields, in its order."""
        async for one in self._batched(result, _LIMIT):
            yield one

    async def _batched(self, source: AsyncIterator[Any], limit: int) -> AsyncIterator[Any]:
        # The dupefilter makes it after the middlewares.
        prefetch = prefetches.get(self._crawler)
        if prefetch is None or not is_asyncio_available():
            async for one in source:
                yield one
            return
        async for batch in batches(source, limit):
            prefetch.ask(batch)
            for one in batch:
                yield one


async def batches(source: AsyncIterator[T], limit: int) -> AsyncIterator[list[T]]:
    """Lists of at most ``limit`` objects from the source, in order; each ends where the source waits.

    The source runs in a task of its own, never more than ``limit`` objects ahead. Its exception comes
    after what it yielded before.
    """
    found: list[T] = []
    moved = asyncio.Event()
    taken = asyncio.Event()

    async def run() -> None:
        async for one in source:
            found.append(one)
            moved.set()
            if len(found) >= limit:
                taken.clear()
                await taken.wait()

    task = asyncio.ensure_future(run())
    task.add_done_callback(lambda _: moved.set())
    try:
        while True:
            while not found and not task.done():
                moved.clear()
                await moved.wait()
            if found:
                batch = found[:]
                found.clear()
                taken.set()
                yield batch
            else:
                task.result()  # raises what the source raised
                return
    finally:
        if not task.done():
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

"""Gathers the requests that a callback yields without waiting, so that they are asked for in one call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from scrapy.http import Response

    from tbloom.scrapy.dupefilter.prefetch import Prefetch

T = TypeVar("T")

#: Limit for the requests of a response that are held back.
_LIMIT = 500


class BatchMiddleware:
    """Spider middleware: prefetches the answers for batches of requests."""

    #: The dupefilter sets it where the event loop can go on meanwhile.
    prefetch: Prefetch | None = None

    async def process_spider_output(
        self, response: Response, result: AsyncIterator[Any]
    ) -> AsyncIterator[Any]:
        """What the callback yields, in its order."""
        if self.prefetch is None:
            async for one in result:
                yield one
            return
        async for batch in batches(result, _LIMIT):
            await self.prefetch.ask(batch)
            for one in batch:
                yield one


async def batches(source: AsyncIterator[T], limit: int) -> AsyncIterator[list[T]]:
    """Lists of at most ``limit`` objects from the source, in order; each ends where the source waits.

    The source runs in a task of its own, never more than ``limit`` objects ahead. Its exception comes
    after what it yielded before.
    """
    queue: asyncio.Queue[T] = asyncio.Queue(limit - 1)  # and one that the reader has

    async def run() -> None:
        async for one in source:
            await queue.put(one)

    task = asyncio.ensure_future(run())
    try:
        while not (task.done() and queue.empty()):
            first = asyncio.ensure_future(queue.get())
            await asyncio.wait({first, task}, return_when=asyncio.FIRST_COMPLETED)
            if first.done():
                yield [first.result(), *(queue.get_nowait() for _ in range(queue.qsize()))]
            else:
                first.cancel()
        if error := task.exception():
            raise error.with_traceback(error.__traceback__ and error.__traceback__.tb_next)
    finally:
        if not task.done():
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

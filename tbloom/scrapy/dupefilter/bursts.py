"""What an async iterator yields, in bursts: as much as comes without waiting."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")


async def bursts(source: AsyncIterator[T], most: int) -> AsyncIterator[list[T]]:
    """Lists of what the source yields, in order, of at most ``most``; each is given on as soon as the
    source waits for something. An exception of the source comes after what it yielded before.

    The source runs in a task of its own, never more than ``most`` ahead.
    """
    found: list[T] = []
    moved = asyncio.Event()
    taken = asyncio.Event()

    async def run() -> None:
        async for one in source:
            found.append(one)
            moved.set()
            if len(found) >= most:
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
                burst = found[:]
                found.clear()
                taken.set()
                yield burst
            else:
                task.result()  # raises what the source raised
                return
    finally:
        if not task.done():
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

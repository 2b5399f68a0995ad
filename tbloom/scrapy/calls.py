"""Calls to the store of one crawl, while the event loop goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


class Calls:
    """Makes the calls one after the other: with ``in_thread`` in a thread of its own, else at once."""

    def __init__(self, *, in_thread: bool) -> None:
        self._thread = ThreadPoolExecutor(1, "tbloom-calls") if in_thread else None

    @property
    def in_thread(self) -> bool:
        """The event loop does not wait for ``run`` and ``post``."""
        return self._thread is not None

    async def run(self, call: Callable[[], T]) -> T:
        """The result of a call, awaited."""
        return await asyncio.wrap_future(self._thread.submit(call)) if self._thread else call()

    def now(self, call: Callable[[], T]) -> T:
        """The result of a call; the event loop waits for it, and for those before it."""
        return self._thread.submit(call).result() if self._thread else call()

    def post(
        self, call: Callable[[], object], then: Callable[[Future[object]], None]
    ) -> Future[object]:
        """Makes a call for which nothing waits; ``then`` gets its future too, in the event loop."""
        if self._thread:
            loop = asyncio.get_running_loop()
            future = self._thread.submit(call)
            future.add_done_callback(lambda done: loop.call_soon_threadsafe(then, done))
            return future
        future = Future()
        try:
            future.set_result(call())
        except Exception as error:  # noqa: BLE001 - the future has it
            future.set_exception(error)
        then(future)
        return future

    def close(self) -> None:
        """Ends the thread, once its calls are made."""
        if self._thread:
            self._thread.shutdown()

"""The signs of life of a session that claims items: a thread's, or a task's."""

from __future__ import annotations

from asyncio import sleep
from collections.abc import Callable, Coroutine
from contextlib import suppress
from threading import Event
from typing import Any
from weakref import WeakMethod

from redis import RedisError

from tbloom.errors import TBloomError

# The filter object is held weakly, so that it can go, and its session end with it.


def beat_in_thread(method: WeakMethod[Callable[[], None]], closed: Event, seconds: float) -> None:
    """Calls the method every so many seconds, for as long as its object is there and open."""
    while not closed.wait(seconds):
        beat = method()
        if beat is None:
            return
        with suppress(RedisError, TBloomError):  # the next one may come through
            beat()
        del beat


async def beat_in_task(
    method: WeakMethod[Callable[[], Coroutine[Any, Any, None]]], seconds: float
) -> None:
    """Awaits the method every so many seconds, for as long as its object is there."""
    while True:
        await sleep(seconds)
        beat = method()
        if beat is None:
            return
        with suppress(RedisError, TBloomError):
            await beat()
        del beat

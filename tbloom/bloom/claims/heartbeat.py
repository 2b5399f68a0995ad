"""The signs of life of a session that claims items: a thread's, or a task's."""

from __future__ import annotations

import logging
from asyncio import sleep
from collections.abc import Callable, Coroutine
from threading import Event
from typing import Any
from weakref import WeakMethod

logger = logging.getLogger(__name__)

#: The first sign comes soon, because it also clears up after sessions that have died; after one that
#: failed, the next comes so many times sooner.
_FIRST, _SOONER = 1.0, 5

# The filter object is held weakly, so that it can go, and its session end with it.


def beat_in_thread(method: WeakMethod[Callable[[], None]], closed: Event, seconds: float) -> None:
    """Calls the method every so many seconds, for as long as its object is there and open."""
    pause, failing = min(_FIRST, seconds), False
    while not closed.wait(pause):
        beat = method()
        if beat is None:
            return
        try:
            beat()
        except Exception as error:  # noqa: BLE001 - the next one may come through
            failing = _say(error, failing)
        else:
            failing = False
        pause = seconds / _SOONER if failing else seconds
        del beat


async def beat_in_task(
    method: WeakMethod[Callable[[], Coroutine[Any, Any, None]]], seconds: float
) -> None:
    """Awaits the method every so many seconds, for as long as its object is there."""
    pause, failing = min(_FIRST, seconds), False
    while True:
        await sleep(pause)
        beat = method()
        if beat is None:
            return
        try:
            await beat()
        except Exception as error:  # noqa: BLE001
            failing = _say(error, failing)
        else:
            failing = False
        pause = seconds / _SOONER if failing else seconds
        del beat


def _say(error: Exception, failing: bool) -> bool:  # noqa: FBT001 - a state, not an option
    if not failing:
        logger.warning(
            "a sign of life failed; if none comes through, claims may be lost: %s", error
        )
    return True

"""The heartbeats of a session that claims items, sent from a thread or a task."""

from __future__ import annotations

import logging
from asyncio import sleep
from collections.abc import Callable, Coroutine
from threading import Event
from typing import Any
from weakref import WeakMethod

logger: logging.Logger = logging.getLogger(__name__)

#: Seconds before the first heartbeat. It is sent soon, because it also cleans up after dead sessions.
_FIRST = 1.0
_FAILED = "a heartbeat failed; until one succeeds, claims may be lost: %s"

# References to the filter object are weak, so that its session ends with it.


def run_in_thread(method: WeakMethod[Callable[[], None]], closed: Event, interval: float) -> None:
    """Call the method every ``interval`` seconds, until its object is closed or gone."""
    pause, has_failed = min(_FIRST, interval), False
    while not closed.wait(pause) and (send := method()) is not None:
        pause = interval
        try:
            send()
            has_failed = False
        except Exception as error:  # noqa: BLE001 - the next one may succeed
            if not (has_failed or closed.is_set()):  # close() may have caused the error
                _warn(error)
            has_failed = True
        del send


async def run_in_task(
    method: WeakMethod[Callable[[], Coroutine[Any, Any, None]]], interval: float
) -> None:
    """Await the method every ``interval`` seconds, until its object is gone."""
    has_failed = False
    await sleep(min(_FIRST, interval))
    while (send := method()) is not None:
        try:
            await send()
            has_failed = False
        except Exception as error:  # noqa: BLE001 - the next one may succeed
            if not has_failed:
                _warn(error)
            has_failed = True
        del send
        await sleep(interval)


def _warn(error: Exception) -> None:
    # Logged as text: a handler that keeps the error would keep the object alive, and its heartbeats with it.
    logger.warning(_FAILED, str(error))

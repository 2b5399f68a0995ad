"""The heartbeats of a session that claims items, sent from a thread or a task."""

from __future__ import annotations

import logging
from asyncio import sleep
from collections.abc import Callable, Coroutine, Generator
from threading import Event
from typing import Any
from weakref import WeakMethod

logger = logging.getLogger(__name__)

#: Seconds before the first heartbeat. It comes soon, because it also cleans up after dead sessions.
_FIRST = 1.0
#: After a failure the next heartbeat comes this many times sooner.
_SOONER = 5

# The filter object is held weakly: when it goes, its session ends.


def run_in_thread(method: WeakMethod[Callable[[], None]], closed: Event, interval: float) -> None:
    """Calls the method every ``interval`` seconds, until its object is closed or gone."""
    pauses = _pauses(interval)
    pause = next(pauses)
    while not closed.wait(pause) and (send := method()) is not None:
        try:
            send()
            pause = pauses.send(None)
        except Exception as error:  # noqa: BLE001 - the next one may succeed
            pause = pauses.send(error)
        del send


async def run_in_task(
    method: WeakMethod[Callable[[], Coroutine[Any, Any, None]]], interval: float
) -> None:
    """Awaits the method every ``interval`` seconds, until its object is gone."""
    pauses = _pauses(interval)
    await sleep(next(pauses))
    while (send := method()) is not None:
        try:
            await send()
            pause = pauses.send(None)
        except Exception as error:  # noqa: BLE001 - the next one may succeed
            pause = pauses.send(error)
        del send
        await sleep(pause)


def _pauses(interval: float) -> Generator[float, Exception | None]:
    """The pause (s) before each heartbeat; is sent the last one's error. Logs the first of several errors."""
    error, is_failing = (yield min(_FIRST, interval)), False
    while True:
        if error and not is_failing:
            logger.warning("a heartbeat failed; until one succeeds, claims may be lost: %s", error)
        # An error refers to the filter object.
        is_failing, error = error is not None, None
        error = yield interval / _SOONER if is_failing else interval

"""The heartbeats of a session that claims items, sent from a thread or a task."""

from __future__ import annotations

import logging
from asyncio import sleep
from collections.abc import Callable, Coroutine
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
    pause, failing = min(_FIRST, interval), False
    while not closed.wait(pause):
        send = method()
        if send is None:
            return
        try:
            send()
        except Exception as error:  # noqa: BLE001 - the next one may succeed
            _log(error, failing)
            failing = True
        else:
            failing = False
        pause = interval / _SOONER if failing else interval
        del send


async def run_in_task(
    method: WeakMethod[Callable[[], Coroutine[Any, Any, None]]], interval: float
) -> None:
    """Awaits the method every ``interval`` seconds, until its object is gone."""
    pause, failing = min(_FIRST, interval), False
    while True:
        await sleep(pause)
        send = method()
        if send is None:
            return
        try:
            await send()
        except Exception as error:  # noqa: BLE001 - the next one may succeed
            _log(error, failing)
            failing = True
        else:
            failing = False
        pause = interval / _SOONER if failing else interval
        del send


def _log(error: Exception, failing: bool) -> None:  # noqa: FBT001 - a state, not an option
    if not failing:
        logger.warning("a heartbeat failed; until one succeeds, claims may be lost: %s", error)

"""Timers for Scrapy 2.13, which are in ``scrapy.utils.asyncio`` from 2.14 on."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from twisted.internet.error import AlreadyCalled, AlreadyCancelled
from twisted.internet.task import LoopingCall

__all__ = ["call_later", "create_looping_call"]

create_looping_call: Any = LoopingCall


class _Timer:
    def __init__(self, call: Any) -> None:
        self._call = call

    def cancel(self) -> None:
        """Cancel the call, unless it was made."""
        with suppress(AlreadyCalled, AlreadyCancelled):
            self._call.cancel()


def call_later(delay: float, call: Callable[..., object], *args: Any) -> _Timer:
    """Call a function after so many seconds."""
    from twisted.internet import reactor  # noqa: PLC0415 - the import installs one where there is none

    later: Any = reactor
    return _Timer(later.callLater(delay, call, *args))

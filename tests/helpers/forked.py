"""Calls in processes forked from one that has imported Scrapy already, because that takes longer than most crawls."""

from __future__ import annotations

import multiprocessing
import os
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

from tests.helpers import guard

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["tests.helpers.preloaded"])


class Forked:
    """A call in a process of its own."""

    def __init__(self, work: Callable[..., Any], *arguments: Any, **given: Any) -> None:
        self._answer, answer = _FORKS.Pipe(duplex=False)
        call = partial(work, *arguments, **given)
        self._process = _FORKS.Process(target=_send_answer, args=(answer, call), daemon=True)
        self._process.start()
        assert self._process.pid
        guard.watch(self._process.pid)
        answer.close()

    def kill(self) -> None:
        self._process.kill()
        self._join()

    def _join(self) -> None:
        self._process.join()
        assert self._process.pid
        guard.forget(self._process.pid)

    @property
    def is_running(self) -> bool:
        """Whether it has neither answered nor ended."""
        return not self._answer.poll()

    def send_signal(self, number: int) -> None:
        assert self._process.pid
        with suppress(ProcessLookupError):  # it has ended
            os.kill(self._process.pid, number)

    def result(self) -> Any:
        """What the call answers, or None where the process was killed."""
        try:
            answer = self._answer.recv()
        except EOFError:
            answer = None
        except BaseException:  # pytest-timeout's
            self.kill()
            raise
        self._join()
        if isinstance(answer, Exception):
            raise answer
        return answer


def _send_answer(answer: Connection, call: Callable[[], Any]) -> None:
    try:
        answer.send(call())
    except Exception:  # noqa: BLE001 - the parent raises it
        answer.send(RuntimeError(traceback.format_exc()))

"""Calls in processes forked from one that has imported Scrapy already, because that takes longer than most crawls."""

from __future__ import annotations

import logging
import multiprocessing
import os
import traceback
import warnings
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
        return _raised(answer)


#: The process of ``in_turn``, and the pipe to it, while it makes no call.
_idle = list[tuple[Forked, Connection]]()


def in_turn(work: Callable[..., Any], *arguments: Any, **given: Any) -> Any:
    """What a call answers, or None where its process was killed. It is that of the calls before, because only the first crawl of a
    process pays for what Scrapy does once; so this is for crawls that get no other signal, and leave their process as it was."""
    if not _idle:
        calls, theirs = _FORKS.Pipe()
        _idle.append((Forked(_answer_calls, theirs), calls))
        theirs.close()
    process, calls = _idle.pop()
    try:
        calls.send(partial(work, *arguments, **given))
        answer = _raised(calls.recv())
    except BaseException as error:  # also pytest-timeout's
        process.kill()
        if isinstance(error, EOFError):
            return None
        raise
    _idle.append((process, calls))
    return answer


def _raised(answer: Any) -> Any:
    if isinstance(answer, Exception):
        raise answer
    return answer


def _answer_calls(calls: Connection) -> None:
    from scrapy.utils.reactor import install_reactor  # noqa: PLC0415 - it may not be in the fork server

    install_reactor("twisted.internet.asyncioreactor.AsyncioSelectorReactor")
    from twisted.internet import reactor  # noqa: PLC0415

    reactor.startRunning(installSignalHandlers=False)
    while True:
        with warnings.catch_warnings():
            logging.captureWarnings(False)
            logging.basicConfig(handlers=[], level=logging.WARNING, force=True)
            _send_answer(calls, calls.recv())


def _send_answer(answer: Connection, call: Callable[[], Any]) -> None:
    try:
        answer.send(call())
    except Exception:  # noqa: BLE001 - the parent raises it
        answer.send(RuntimeError(traceback.format_exc()))

"""Calls in processes forked from one that has imported Scrapy already, because that takes longer than most crawls.

All forks of a run share that process, the server. It ends with the last process that could ask it for a child.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tests.helpers import guard


@cache
def server() -> socket.socket:
    """Start the server unless it runs; return the socket through which it takes the files of a child."""
    ours, its = socket.socketpair()
    subprocess.Popen(
        [sys.executable, "-m", "tests.helpers.preloaded", str(its.fileno())],
        cwd=Path(__file__).parents[2], pass_fds=[its.fileno()], stdin=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    its.close()
    return ours


def serve(requests: socket.socket) -> None:
    """Fork a child for each request, until nobody is left who could make one."""
    fork = multiprocessing.get_context("fork").Process
    while files := socket.recv_fds(requests, 1, 3)[1]:
        calls, *outputs = files
        fork(target=_answer_calls, args=(Connection(calls), outputs, requests), daemon=True).start()
        for output in outputs:
            os.close(output)


def _answer_calls(calls: Connection, outputs: list[int], requests: socket.socket) -> None:
    requests.close()
    for output, own in zip(outputs, (1, 2), strict=True):
        os.dup2(output, own)
        os.close(output)
    calls.send(os.getpid())
    sys.path[:] = calls.recv()
    with suppress(EOFError):  # the parent has ended
        while call := calls.recv():
            with warnings.catch_warnings():
                logging.captureWarnings(False)
                logging.basicConfig(handlers=[], level=logging.WARNING, force=True)
                try:
                    calls.send(call())
                except Exception:  # noqa: BLE001 - the parent raises it
                    calls.send(RuntimeError(traceback.format_exc()))


class Forked:
    """A call in a process of its own."""

    def __init__(self, work: Callable[..., Any], *arguments: Any, **given: Any) -> None:
        self._calls, its = multiprocessing.Pipe()
        socket.send_fds(server(), [b"."], [its.fileno(), 1, 2])
        its.close()
        self._pid = self._calls.recv()
        guard.watch(self._pid)
        self._calls.send(sys.path)
        self.call(work, *arguments, **given)

    def call(self, work: Callable[..., Any], *arguments: Any, **given: Any) -> None:
        """Make a further call, after the answer to the one before."""
        self._calls.send(partial(work, *arguments, **given))

    @property
    def has_ended(self) -> bool:
        return self._calls.closed

    @property
    def is_running(self) -> bool:
        """Whether it has neither answered nor ended."""
        return not self.has_ended and not self._calls.poll()

    def send_signal(self, number: int) -> None:
        if not self.has_ended:
            with suppress(ProcessLookupError):
                os.kill(self._pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)
        self._end()

    def _end(self) -> None:
        """Make no more calls, and wait for the end of the process."""
        if not self.has_ended:
            with suppress(EOFError, ConnectionError):
                self._calls.send(None)
                while True:
                    self._calls.recv_bytes()
            self._calls.close()
            guard.forget(self._pid)

    def answer(self) -> Any:
        """What the call answers, or None where the process was killed."""
        answer = None
        try:
            if not self.has_ended:
                answer = self._calls.recv()
        except (EOFError, ConnectionError):
            self._end()
        except BaseException:  # pytest-timeout's
            self.kill()
            raise
        if isinstance(answer, Exception):
            self.kill()
            raise answer
        return answer

    def result(self) -> Any:
        """The same, once the process has ended."""
        answer = self.answer()
        self._end()
        return answer


#: The process of ``in_turn``, while it makes no call.
_idle = list[Forked]()


def in_turn(work: Callable[..., Any], *arguments: Any, **given: Any) -> Any:
    """What a call answers, or None where its process was killed. It is that of the calls before, because only the first crawl of a
    process pays for what Scrapy does once; so this is for crawls that get no other signal, and leave their process as it was."""
    if not _idle:
        _idle.append(Forked(_start_reactor))
        _idle[0].answer()
    process = _idle.pop()
    process.call(work, *arguments, **given)
    answer = process.answer()
    if not process.has_ended:
        _idle.append(process)
    return answer


def _start_reactor() -> None:
    from scrapy.utils.reactor import install_reactor  # noqa: PLC0415 - it may not be in the server

    install_reactor("twisted.internet.asyncioreactor.AsyncioSelectorReactor")
    from twisted.internet import reactor  # noqa: PLC0415

    reactor.startRunning(installSignalHandlers=False)
